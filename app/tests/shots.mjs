// The pictures of docs/app.md, from the real program with the bundled model: `cargo xtask app-shots`. A further picture is a line in one of the lists
// below, and one in docs/app.md that shows it. What is downloaded on them comes from a hub on loopback, whose address OUZEL_TEST_HUB has.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { answers, ask, composer, launch, newChat, newFolder, Ouzel, person, removeFolder, shot } from "./tool.mjs";

const HUB = process.env.OUZEL_TEST_HUB;
/** What it has. */
const OFFERED = ["--repo", "ouzel/synthetic", "--revision", "5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed"];

const LAPTOP = { viewport: { width: 1280, height: 800 } };
// Without the list of conversations, so that what is shown is most of it.
const WINDOW = { viewport: { width: 720, height: 860 } };
const NARROW = { viewport: { width: 320, height: 640 } };
// Laid out for 4K, and taken in a third of the size.
const HUGE = { viewport: { width: 3840, height: 2160 }, deviceScaleFactor: 1 / 3 };

// Each picture: name, screen, colours, and what is done before it is taken.

/** Without a model, as a person starts it first. */
const FIRST_RUN = [
  ["first-run-light", LAPTOP, "light", ways],
  ["first-run-dark", LAPTOP, "dark", ways],
  ["first-run-narrow-light", NARROW, "light", ways],
];

/** One after the other: each goes on where the one before was. */
const DOWNLOAD = [
  ["offered-light", WINDOW, "light", offered],
  ["downloading-dark", WINDOW, "dark", downloading],
  ["paused-light", WINDOW, "light", paused],
];

/** With a context that a question or two outgrow. */
const OUTGROWN = [["overflow-light", WINDOW, "light", outgrown]];

/** With the bundled model, from a conversation that was answered. */
const CONVERSATION = [
  ["locked-light", LAPTOP, "light", locked],
  ["empty-light", LAPTOP, "light", newChat],
  ["empty-dark", LAPTOP, "dark", newChat],
  ["attached-light", WINDOW, "light", attached],
  ["chat-light", LAPTOP, "light", chat],
  ["chat-dark", LAPTOP, "dark", chat],
  ["chat-narrow-light", NARROW, "light", chat],
  ["list-narrow-dark", NARROW, "dark", list],
  ["chat-4k-light", HUGE, "light", chat],
  ["markdown-dark", LAPTOP, "dark", markdown],
  ["settings-light", LAPTOP, "light", settings],
  ["models-light", WINDOW, "light", models],
  ["models-dark", WINDOW, "dark", models],
  ["refused-light", WINDOW, "light", refused],
  ["delete-dark", LAPTOP, "dark", remove],
  // These begin further conversations.
  ["details-light", LAPTOP, "light", details],
  ["details-dark", LAPTOP, "dark", details],
  // From here on the program is gone.
  ["lost-light", LAPTOP, "light", lost],
];

const main = (page) => page.getByRole("main");

async function ways(page) {
  await page.getByRole("heading", { name: "Which model shall answer?" }).waitFor();
  await page.getByText("Free disk").waitFor();
}

async function offered(page) {
  await ways(page);
  await main(page).getByRole("button", { name: `Ask ${new URL(HUB).host}` }).click();
  await main(page).getByText("enough", { exact: true }).waitFor();
}

async function downloading(page) {
  await main(page).getByRole("button", { name: "Download" }).click();
  await page.waitForFunction(() => Number(document.querySelector("[role=progressbar]")?.getAttribute("aria-valuenow") ?? 0) >= 20);
  await main(page).getByText(/ left$/).waitFor();
}

async function paused(page) {
  await main(page).getByRole("button", { name: "Pause" }).click();
  await main(page).getByText("Paused").waitFor();
}

async function attached(page) {
  await page.keyboard.press("Alt+N");
  const text = (name, text) => ({ name, mimeType: "text/plain", buffer: Buffer.from(text) });
  await page.locator("input[type=file]").setInputFiles([
    text("garden.md", "# Birds of the garden\n\nA thrush sings from the ash tree at dusk.\n".repeat(4)),
    text("count.py", "birds = ['thrush', 'fieldfare']\nprint(len(birds))\n"),
  ]);
  await page.getByText(/tokens together$/).waitFor();
}

async function outgrown(page) {
  await composer(page).fill("Tell me all about thrushes, blackbirds, fieldfares and other songbirds of the garden. ".repeat(3));
  await composer(page).press("Enter");
  await page.getByRole("group", { name: "What can be done" }).waitFor();
}

/** The dialog with what a budget gives. */
async function models(page) {
  await page.locator("footer").getByRole("button", { name: "demo", exact: true }).click();
  const dialog = page.getByRole("dialog", { name: "Model and memory" });
  const resolved = dialog.getByRole("region", { name: "What that gives" }).and(page.locator("[aria-busy=false]"));
  await resolved.waitFor();
  await dialog.getByRole("spinbutton", { name: "Context, in tokens" }).fill("1024");
  await dialog.getByRole("spinbutton", { name: "Memory, in GiB" }).fill("0.25");
  await resolved.getByText("1,024 of at most").waitFor();
  await resolved.scrollIntoViewIfNeeded();
  return dialog;
}

async function refused(page) {
  const dialog = await models(page);
  await dialog.getByRole("spinbutton", { name: "Memory, in GiB" }).fill("0.001");
  await dialog.getByRole("alert").filter({ hasText: "at least" }).waitFor();
}

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

/** What a person does first, and what there is then: the page's address, and the cookie of whoever opened it. */
async function begin(browser, ouzel, first) {
  const { page, leave } = await person(browser);
  await page.goto(ouzel.address);
  await first(page);
  const begun = { address: page.url(), storageState: await page.context().storageState() };
  await leave();
  return begun;
}

/** Asks, and waits for the end of the answer. */
const asks = (question) => async (page) => {
  await composer(page).waitFor();
  await ask(page, question);
};

/** Pictures of a program of its own, each from where the person who came first was in the end. */
async function take(browser, pictures, started, first, isThere) {
  const folder = newFolder();
  const ouzel = await Ouzel.start(folder, started);
  try {
    const { address, storageState } = await begin(browser, ouzel, first);
    for (const [name, screen, colorScheme, scene] of pictures) {
      const { page, leave } = await person(browser, { ...screen, colorScheme, storageState, reducedMotion: "reduce" });
      await page.goto(address);
      await isThere(page);
      await scene(page, ouzel);
      await shot(page, name);
      await leave();
    }
  } finally {
    await ouzel.end();
    removeFolder(folder);
  }
}

const browser = await launch();
try {
  await icons(browser);
  await take(browser, FIRST_RUN, { args: [] }, ways, ways);
  await take(browser, DOWNLOAD, { args: OFFERED, env: { HF_ENDPOINT: HUB } }, ways, (page) => main(page).waitFor());
  await take(browser, OUTGROWN, { args: ["demo", "--max-context", "140"] }, asks("What is a thrush?"), chat);
  await take(browser, CONVERSATION, {}, asks("What is a fieldfare?"), chat);
} finally {
  await browser.close();
}
