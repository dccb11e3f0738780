// The pictures of docs/app.md, from the real program with the bundled model: `cargo xtask app-shots`. A further picture is a line in PICTURES, and one
// in docs/app.md that shows it.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { answers, ask, composer, launch, newChat, newFolder, Ouzel, person, removeFolder, shot } from "./tool.mjs";

const LAPTOP = { viewport: { width: 1280, height: 800 } };
const NARROW = { viewport: { width: 320, height: 640 } };
// Laid out for 4K, and taken in a third of the size.
const HUGE = { viewport: { width: 3840, height: 2160 }, deviceScaleFactor: 1 / 3 };

/** Name, screen, colours, and what is done before it is taken. Each begins with the page of a conversation that was answered. */
const PICTURES = [
  ["locked-light", LAPTOP, "light", locked],
  ["empty-light", LAPTOP, "light", newChat],
  ["empty-dark", LAPTOP, "dark", newChat],
  ["chat-light", LAPTOP, "light", chat],
  ["chat-dark", LAPTOP, "dark", chat],
  ["chat-narrow-light", NARROW, "light", chat],
  ["list-narrow-dark", NARROW, "dark", list],
  ["chat-4k-light", HUGE, "light", chat],
  ["markdown-dark", LAPTOP, "dark", markdown],
  ["settings-light", LAPTOP, "light", settings],
  ["delete-dark", LAPTOP, "dark", remove],
  // These begin further conversations.
  ["details-light", LAPTOP, "light", details],
  ["details-dark", LAPTOP, "dark", details],
  // From here on the program is gone.
  ["lost-light", LAPTOP, "light", lost],
];

async function locked(page) {
  await page.context().clearCookies();
  await page.reload();
  await page.getByRole("heading", { name: "This page is locked" }).waitFor();
}

async function chat(page) {
  await answers(page).first().locator(".end").waitFor();
}

async function list(page) {
  await page.getByRole("button", { name: "Open the list of conversations" }).click();
  await page.getByRole("link", { name: "What is a fieldfare?" }).waitFor();
  await page.waitForTimeout(300);
}

/** The bundled model writes no Markdown, so the words of its answer come from here. */
async function markdown(page) {
  const text = [
    "An **ouzel** is a bird of the thrush family. In short:",
    "| bird | weight | where |\n|---|--:|---|\n| ring ouzel | 110 g | mountains |\n| fieldfare | 100 g | orchards |",
    "```rust\nfn main() {\n    println!(\"tac-tac-tac\");\n}\n```",
    "> The ring ouzel sings from the highest stone.",
  ].join("\n\n");
  await page.route("**/app/chats/*", async (route) => {
    const response = await route.fetch();
    const whole = await response.json();
    whole.messages[1].text = text;
    await route.fulfill({ response, json: whole });
  });
  await page.reload();
  await answers(page).first().locator("table").waitFor();
}

async function details(page) {
  await page.getByRole("button", { name: "Details" }).click();
  const panel = page.getByRole("complementary", { name: "Details" });
  await panel.getByText("How the memory is spent").waitFor();
  for (const word of ["thrush", "moor", "mountain", "river", "bird", "stone"]) {
    await newChat(page);
    await ask(page, `What is a ${word}?`);
  }
  await panel.getByText(/\/s$/).waitFor();
}

async function settings(page) {
  await page.getByRole("button", { name: "Settings" }).click();
  await page.getByRole("dialog").waitFor();
}

async function remove(page) {
  await page.getByRole("button", { name: "Delete" }).click();
  await page.getByRole("dialog").waitFor();
}

async function lost(page, ouzel) {
  await ouzel.kill();
  await page.getByText("Ouzel does not answer.").waitFor();
}

/** The icon in the sizes that macOS asks for. */
async function icons(browser) {
  const svg = readFileSync(new URL("../public/assets/icon.svg", import.meta.url), "utf8");
  for (const size of [128, 256, 512]) {
    const page = await browser.newPage({ viewport: { width: size, height: size } });
    await page.setContent(`<style>body { margin: 0 } svg { display: block; width: 100vw }</style>${svg}`);
    await page.screenshot({ path: join(process.env.OUZEL_ICONS, `icon-${size}.png`), omitBackground: true });
    await page.close();
  }
}

/** The address of a conversation that was answered, and the cookie of whoever asked. */
async function begin(browser, ouzel) {
  const first = await person(browser);
  await first.page.goto(ouzel.address);
  await composer(first.page).waitFor();
  await ask(first.page, "What is a fieldfare?");
  const begun = { address: first.page.url(), storageState: await first.page.context().storageState() };
  await first.leave();
  return begun;
}

const folder = newFolder();
const browser = await launch();
const ouzel = await Ouzel.start(folder);
try {
  await icons(browser);
  const { address, storageState } = await begin(browser, ouzel);
  for (const [name, screen, colorScheme, scene] of PICTURES) {
    const { page, leave } = await person(browser, { ...screen, colorScheme, storageState, reducedMotion: "reduce" });
    await page.goto(address);
    await answers(page).first().locator(".end").waitFor();
    await scene(page, ouzel);
    await shot(page, name);
    await leave();
  }
} finally {
  await browser.close();
  await ouzel.end();
  removeFolder(folder);
}
