// Builds the page into the server room, which embeds it. Names carry no hashes, because the server stores nothing in the browser, and the
// same sources give the same bytes anywhere: `cargo xtask app --check` compares them.
import { defineConfig } from "vite";

export default defineConfig({
  base: "/",
  build: {
    outDir: "../crates/server/page",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: false,
    reportCompressedSize: false,
    rolldownOptions: {
      output: {
        entryFileNames: "assets/app.js",
        assetFileNames: "assets/app.[ext]",
        codeSplitting: false,
      },
    },
  },
});
