// The page in a real browser against the real program: what a person does with it, and what happens when things end badly.

import assert from "node:assert/strict";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { after, before, test } from "node:test";
import { accessible, answers, ask, composer, ended, launch, newChat, newFolder, Ouzel, person, removeFolder, shot } from "./tool.mjs";

let browser;
let folder;
let ouzel;
before(async () => {
  browser = await launch();
  folder = newFolder();
  ouzel = await Ouzel.start(folder);
});
after(async () => {
  await browser?.close();
  await ouzel?.end();
  if (folder) removeFolder(folder);
});

/** The one who opens the address first, and stays in. */
let first;

test("the address opens the page once, and no other way does", async () => {
  const stranger = await person(browser);
  await stranger.page.goto(ouzel.url);
  await stranger.page.getByRole("heading", { name: "This page is locked" }).waitFor();
  await accessible(stranger.page, "locked");
  await shot(stranger.page, "locked");
  first = await person(browser);
  await first.page.goto(ouzel.address);
  await first.page.getByRole("heading", { name: "What would you like to know?" }).waitFor();
  assert.equal(first.page.url(), ouzel.url, "the token is in no address any more");
  await accessible(first.page, "empty");
  await shot(first.page, "empty");
  await stranger.page.goto("about:blank");
  await stranger.page.goto(ouzel.address);
  await stranger.page.getByRole("heading", { name: "This page is locked" }).waitFor();
  await stranger.leave();
});

test("a question is answered, and the answer says why it ended", async () => {
  const { page } = first;
  await page.getByRole("button", { name: "What is a fieldfare?" }).click();
  const answer = await ended(page, 0);
  assert.match(await answer.innerText(), /thrush/i);
  assert.match(await answer.locator(".end").innerText(), /The model finished its answer\. · \d+ tokens/);
  await page.getByRole("link", { name: "What is a fieldfare?" }).waitFor();
  assert.match(page.url(), /#\/\d+$/);
  await page.getByText("Answers can be wrong").waitFor();
  await accessible(page, "chat");
  await answer.getByRole("button", { name: "Copy the answer" }).click();
  assert.match(await page.evaluate(() => navigator.clipboard.readText()), /thrush/i);
});

test("what a model writes is shown as Markdown, and never as HTML", async () => {
  const { page } = first;
  // The bundled model says nothing of the kind, so the conversation comes from the server with other words.
  const text = [
    "# Birds\n\nSome *are* **black**, see [the list](https://example.org/a) and [this](javascript:alert(1)).",
    "<img src=x onerror=alert(1)><script>alert(2)</script>",
    "![a picture](https://example.org/a.png)",
    "| bird | weight |\n|---|--:|\n| ouzel | 110 g |\n| fieldfare | 100 g |",
    "```rust\nfn main() {\n    println!(\"an <b>ouzel</b>\");\n}\n```",
    "1. one\n2. two\n   - nested",
    "> said somebody",
    "From $5 to $10, or US$3: $a^2 + b^2 = c^2$ and \\(\\frac{1}{2}\\), not \\(\\href{javascript:alert(3)}{x}\\).",
    "$$\n\\sum_{i=1}^n i = \\frac{n(n+1)}{2}\n$$",
  ].join("\n\n");
  await page.route("**/app/chats/*", async (route) => {
    const response = await route.fetch();
    const chat = await response.json();
    chat.messages[1].text = text;
    chat.messages[1].thinking = "Birds, then.";
    await route.fulfill({ response, json: chat });
  });
  await page.reload();
  const answer = answers(page).first();
  await answer.locator("table").waitFor();
  assert.equal(await answer.locator("img, script, [onerror]").count(), 0);
  assert.deepEqual(await answer.locator("a").evaluateAll((links) => links.map((link) => link.href)), ["https://example.org/a"]);
  assert.equal(await answer.locator("a").getAttribute("rel"), "noopener noreferrer");
  assert.match(await answer.innerText(), /<script>alert\(2\)<\/script>/);
  // A link is no formula: it stands there as it was written.
  assert.equal(await answer.locator("math").count(), 3);
  assert.equal(await answer.locator("code", { hasText: "\\href" }).count(), 1);
  assert.equal(await answer.locator("math[display=block] munderover, math[display=block] mfrac").count(), 2);
  assert.match(await answer.innerText(), /From \$5 to \$10, or US\$3:/);
  assert.equal(await answer.locator("math a, math [href], math [style]").count(), 0);
  await answer.getByRole("button", { name: "Copy", exact: true }).click();
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), 'fn main() {\n    println!("an <b>ouzel</b>");\n}\n');
  assert.equal(await answer.getByText("Birds, then.").isVisible(), false, "thoughts are folded");
  await answer.getByText("Thoughts").click();
  await answer.getByText("Birds, then.").waitFor();
  await accessible(page, "Markdown");
  await shot(page, "markdown");
  await page.unroute("**/app/chats/*");
  await page.reload();
  await page.getByText(/thrush/i).first().waitFor();
});

test("a message is edited and sent again, and an answer made anew", async () => {
  const { page } = first;
  const before = await answers(page).first().innerText();
  await page.getByRole("button", { name: "Answer again" }).click();
  // The bundled model is greedy, so it comes to the same words; a part of them is seen before.
  await answers(page).first().and(page.locator("[aria-busy=false]")).filter({ hasText: before.split("\n")[0] }).waitFor();
  const message = page.getByRole("article", { name: "You" });
  await message.hover();
  await message.getByRole("button", { name: "Edit and send again" }).click();
  const editor = page.getByRole("textbox", { name: "Edit your message" });
  await editor.fill("What is a moor?");
  await page.locator(".editor").getByRole("button", { name: "Send" }).click();
  await page.getByRole("article", { name: "You" }).getByText("What is a moor?").waitFor();
  const answer = await ended(page, 0);
  assert.doesNotMatch(await answer.innerText(), /thrush/i);
  assert.equal(await page.getByRole("article").count(), 2);
});

test("conversations are switched, searched, renamed, exported and deleted", async () => {
  const { page } = first;
  await newChat(page);
  await ask(page, "What is a thrush?");
  await page.getByRole("link", { name: "What is a fieldfare?" }).click();
  await page.getByRole("article", { name: "You" }).getByText("What is a moor?").waitFor();
  await page.getByRole("button", { name: "Rename" }).click();
  await page.getByRole("textbox", { name: "Title" }).fill("About the heath");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByRole("link", { name: "About the heath" }).waitFor();
  await page.getByRole("searchbox").fill("THRUSH what");
  await page.getByRole("link", { name: "About the heath" }).waitFor({ state: "detached" });
  assert.equal(await page.getByRole("navigation").getByRole("link").count(), 1);
  await page.getByRole("searchbox").fill("nowhere");
  await page.getByText("No conversation has these words.").waitFor();
  await page.getByRole("searchbox").fill("");
  await page.getByRole("link", { name: "What is a thrush?" }).click();
  await page.getByRole("article", { name: "You" }).getByText("What is a thrush?").waitFor();
  await page.getByRole("button", { name: "Export" }).click();
  const download = page.waitForEvent("download");
  await page.getByRole("button", { name: "As Markdown" }).click();
  const exported = await (await download).path();
  assert.match(await readFile(exported, "utf8"), /^# What is a thrush\?\n\n## You/);
  await page.getByRole("button", { name: "Delete" }).click();
  await shot(page, "delete");
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await page.getByRole("heading", { name: "What would you like to know?" }).waitFor();
  await page.getByRole("link", { name: "What is a thrush?" }).waitFor({ state: "detached" });
});

test("settings are kept, used, and refused where they are none", async () => {
  const { page } = first;
  await page.getByRole("button", { name: "Settings" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Longest answer").fill("3");
  await dialog.getByLabel("Temperature").fill("9");
  await dialog.getByLabel("Temperature").blur();
  assert.equal(await dialog.getByLabel("Temperature").getAttribute("aria-invalid"), "true");
  await dialog.getByLabel("Temperature").fill("");
  await accessible(page, "settings");
  await shot(page, "settings");
  await page.keyboard.press("Escape");
  await ask(page, "What is a thrush?");
  await answers(page).getByText("The answer reached its length limit.").waitFor();
  await page.reload();
  await page.getByRole("button", { name: "Settings" }).click();
  assert.equal(await dialog.getByLabel("Longest answer").inputValue(), "3");
  await dialog.getByLabel("Longest answer").fill("");
  await dialog.getByLabel("Language").selectOption("de");
  await page.getByRole("heading", { name: "Einstellungen" }).waitFor();
  assert.equal(await page.locator("html").getAttribute("lang"), "de");
  await accessible(page, "German");
  await page.getByLabel("Sprache").selectOption("en");
  await page.keyboard.press("Escape");
});

/** Something that takes long, by settings with which the bundled model finds no end soon. */
async function babble(page) {
  await page.evaluate(() =>
    fetch("/app/settings", {
      method: "PUT",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ temperature: 2, top_p: 1, top_k: 0 }),
    }),
  );
}

/** Asks until an answer is under way with some words in it; with these settings nearly each is. */
async function midAnswer(page) {
  for (;;) {
    await newChat(page);
    await composer(page).fill("Tell me everything about birds.");
    await composer(page).press("Enter");
    const found = await page.waitForFunction(() => {
      const answer = document.querySelector(".message.answer");
      if (answer?.querySelector(".end, .problem")) return "ended";
      return (answer?.querySelector(".markdown")?.textContent?.length ?? 0) > 20 ? "writing" : null;
    });
    if ((await found.jsonValue()) === "writing") return;
  }
}

test("an answer streams, goes on while the page is reloaded, and stops with Escape", async () => {
  const { page } = first;
  await babble(page);
  await midAnswer(page);
  await shot(page, "streaming");
  await page.reload();
  await ended(page, 0);
  assert.ok((await answers(page).first().locator(".markdown").innerText()).length > 20);
  // The bundled model's answers are short, so some end by themselves before the key is pressed.
  let wasStopped = false;
  for (let i = 0; i < 40 && !wasStopped; i++) {
    await midAnswer(page);
    await page.keyboard.press("Escape");
    await ended(page, 0);
    wasStopped = (await answers(page).first().locator(".end").innerText()).includes("You stopped this answer.");
  }
  assert.ok(wasStopped, "Escape stops an answer");
});

test("details show what the engine does", async () => {
  const { page } = first;
  await page.getByRole("button", { name: "Details" }).click();
  const details = page.getByRole("complementary", { name: "Details" });
  await details.getByText("How the memory is spent").waitFor();
  for (let i = 0; i < 5; i++) {
    await newChat(page);
    await ask(page, "Tell me everything about birds.");
  }
  await details.getByText("Experts found in memory").waitFor();
  await details.getByText(/\/s$/).waitFor();
  const grid = details.getByRole("img", { name: /\d+ of \d+ experts are in memory/ });
  await grid.waitFor();
  assert.ok((await grid.locator("path.resident").getAttribute("d")).length > 0, "experts lie in memory");
  await details.getByText("Figures of each layer").click();
  const rows = details.getByRole("table", { name: /Experts of each layer/ }).getByRole("row");
  assert.ok((await rows.count()) > 1);
  assert.match(await rows.nth(1).innerText(), /^1\s+\d+\s+[\d,]+\s+[\d,]+\s+\d+ %$/);
  await accessible(page, "details");
  await shot(page, "details");
  await details.getByRole("button", { name: "Close" }).click();
});

/** A PDF file of one page with these words. */
function pdf(words) {
  const stream = `BT /F1 24 Tf 72 700 Td (${words}) Tj ET`;
  const objects = [
    "<< /Type /Catalog /Pages 2 0 R >>",
    "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
    "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R /Resources << /Font << /F1 5 0 R >> >> >>",
    `<< /Length ${stream.length} >>\nstream\n${stream}\nendstream`,
    "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
  ];
  let file = "%PDF-1.4\n";
  const offsets = objects.map((object, i) => {
    const at = file.length;
    file += `${i + 1} 0 obj\n${object}\nendobj\n`;
    return at;
  });
  const table = file.length;
  file += `xref\n0 6\n0000000000 65535 f \n${offsets.map((at) => `${String(at).padStart(10, "0")} 00000 n \n`).join("")}`;
  return Buffer.from(`${file}trailer\n<< /Size 6 /Root 1 0 R >>\nstartxref\n${table}\n%%EOF\n`);
}

test("files are attached, counted, sent with the question, and taken out of it again", async () => {
  const { page } = first;
  await newChat(page);
  const files = page.getByRole("list", { name: "Attached files" });
  const choose = (...files) => page.locator("input[type=file]").setInputFiles(files.map(([name, buffer]) => ({ name, mimeType: "", buffer: Buffer.from(buffer) })));
  const notes = "A thrush sings.\n\nFile: inner.md\n\n```\nnot a file of its own\n```";
  await choose(["notes.md", notes], ["birds.pdf", pdf("A blackbird is a thrush")]);
  await files.getByText("birds.pdf").waitFor();
  await page.getByText(/tokens together$/).waitFor();
  assert.equal(await files.getByText(/^\d+ tokens$/).count(), 2);
  await accessible(page, "attached");
  await shot(page, "attached");
  // What has no text is refused, by its name, and the others stay.
  await choose(["bird.png", Buffer.from([0x89, 0x50, 0x4e, 0x47, 0xff, 0xfe, 0])]);
  await page.getByRole("alert").filter({ hasText: "bird.png was not attached" }).waitFor();
  await choose(["empty.pdf", pdf("")]);
  await page.getByRole("alert").filter({ hasText: "has no text" }).waitFor();
  assert.equal(await files.getByRole("listitem").count(), 2);
  await ask(page, "What is a thrush?");
  assert.equal(await files.count(), 0);
  const question = page.getByRole("article", { name: "You" });
  assert.equal(await question.locator(".bubble").innerText(), "What is a thrush?");
  await question.getByText("File: notes.md").click();
  assert.equal(await question.locator("pre").first().innerText(), notes);
  assert.match(await question.locator("pre").nth(1).textContent(), /A blackbird is a thrush/);
  await shot(page, "attached-sent");
  // A file that looks like many takes no longer than another.
  await newChat(page);
  await choose(["many.md", `intro\n\n${"File: a\n\n```\nx\n\n".repeat(60000)}`]);
  await files.getByText("many.md").waitFor();
  await composer(page).fill("What is a moor?");
  await page.getByRole("button", { name: "Send" }).click();
  await page.getByText("File: many.md").waitFor();
  assert.equal(await question.locator(".bubble").innerText(), "What is a moor?");
});

/** Kills the program in the middle of an answer and starts it again; whether it was in the middle. */
async function dieAndComeBack(page) {
  await midAnswer(page);
  const { port } = ouzel;
  await ouzel.kill();
  await page.getByText("Ouzel does not answer.").waitFor();
  await shot(page, "lost");
  const address = page.url();
  ouzel = await Ouzel.start(folder, { port });
  // A new program has new secrets, so the page is locked until its address is opened, in the same tab too.
  await page.getByRole("heading", { name: "This page is locked" }).waitFor();
  await page.goto(ouzel.address);
  await page.getByRole("link", { name: "About the heath" }).waitFor();
  await page.goto(address);
  const answer = await ended(page, 0);
  assert.ok((await answer.locator(".markdown").innerText()).length > 0, "what was written is there");
  return /Ouzel ended while it was answering/.test(await answer.locator(".end").innerText());
}

test("what was written survives the program's death in the middle of an answer", async () => {
  const { page } = first;
  // The bundled model's answers are short, so some end before the program does.
  let wasInterrupted = false;
  for (let i = 0; i < 8 && !wasInterrupted; i++) wasInterrupted = await dieAndComeBack(page);
  assert.ok(wasInterrupted);
  await shot(page, "interrupted");
});

/** Kills the process with the model in the middle of an answer; whether it was in the middle. */
async function loseModel(page) {
  await midAnswer(page);
  const { pid } = await page.evaluate(async () => (await fetch("/app/status")).json());
  process.kill(pid, "SIGKILL");
  const answer = await ended(page, 0);
  if ((await answer.locator(".problem").count()) === 0) return false;
  assert.match(await answer.locator(".problem").innerText(), new RegExp(`process ${pid}.*signal 9.*out of memory`, "s"));
  assert.ok((await answer.locator(".markdown").innerText()).length > 20, "what was written stays");
  return true;
}

test("the decode service dies in the middle of an answer, and the next question starts it again", async () => {
  const { page } = first;
  let wasLost = false;
  for (let i = 0; i < 8 && !wasLost; i++) wasLost = await loseModel(page);
  assert.ok(wasLost);
  await accessible(page, "model-lost");
  await shot(page, "model-lost");
  await babble(page);
  await newChat(page);
  await ask(page, "What is a thrush?");
  await ended(page, 0);
  assert.equal(await answers(page).first().locator(".problem").count(), 0);
});

test("everything can be done with the keyboard", async () => {
  const { page } = first;
  await page.evaluate(() => fetch("/app/settings", { method: "PUT", headers: { "content-type": "application/json" }, body: "{}" }));
  await page.reload();
  await page.getByRole("article").first().waitFor();
  await page.keyboard.press("Alt+n");
  await page.getByRole("heading", { name: "What would you like to know?" }).waitFor();
  await page.keyboard.type("What is a thrush?");
  await page.keyboard.press("Enter");
  await ended(page, 0);
  const focused = () => page.evaluate(() => document.activeElement?.getAttribute("aria-label") ?? document.activeElement?.textContent);
  const tabTo = async (name) => {
    for (let i = 0; i < 60; i++) {
      if ((await focused())?.includes(name)) return;
      await page.keyboard.press("Shift+Tab");
    }
    assert.fail(`${name} is not reached`);
  };
  await tabTo("Edit and send again");
  await page.keyboard.press("Enter");
  await page.getByRole("textbox", { name: "Edit your message" }).and(page.locator(":focus")).waitFor();
  await page.keyboard.press("Control+a");
  await page.keyboard.type("What is a moor?");
  await page.keyboard.press("Control+Enter");
  await page.getByRole("article", { name: "You" }).getByText("What is a moor?").waitFor();
  await ended(page, 0);
  await page.keyboard.press("Control+k");
  await page.keyboard.type("heath");
  await page.getByRole("link", { name: "Tell me" }).first().waitFor({ state: "detached" });
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await page.locator(".chat-title", { hasText: "About the heath" }).waitFor();
  await page.keyboard.press("Control+k");
  await page.keyboard.press("Control+a");
  await page.keyboard.press("Delete");
  await page.getByRole("link", { name: "Tell me" }).first().waitFor();
  await tabTo("Skip to the conversation");
  await page.keyboard.press("Enter");
  assert.equal(await focused(), "Message");
  await page.keyboard.press("Shift+Tab");
  await page.keyboard.press("/");
  assert.equal(await focused(), "Message");
});

test("the page fits every screen, light and dark", async () => {
  const { page } = first;
  const sizes = { narrow: [320, 640], phone: [390, 844], tablet: [820, 1180], laptop: [1280, 800], huge: [3840, 2160] };
  for (const colorScheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme });
    for (const [name, [width, height]] of Object.entries(sizes)) {
      await page.setViewportSize({ width, height });
      const overflow = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      assert.ok(overflow <= 0, `${name}: ${overflow} pixels too wide`);
      await accessible(page, `${name}, ${colorScheme}`);
      await shot(page, `chat-${name}-${colorScheme}`);
    }
  }
  await page.setViewportSize({ width: 320, height: 640 });
  await page.getByRole("button", { name: "Open the list of conversations" }).click();
  await page.getByRole("link", { name: "About the heath" }).waitFor();
  await page.waitForTimeout(250);
  await accessible(page, "list on a narrow screen");
  await shot(page, "list-narrow-dark");
  await page.keyboard.press("Escape");
  await page.getByRole("link", { name: "About the heath" }).waitFor({ state: "hidden" });
  await page.getByRole("button", { name: "Open the list of conversations" }).click();
  await page.getByRole("link", { name: "About the heath" }).click();
  await page.locator(".chat-title", { hasText: "About the heath" }).waitFor();
  await first.leave();
});

test("settings end the program", async () => {
  const own = newFolder();
  const other = await Ouzel.start(own);
  const { page, leave } = await person(browser);
  await page.goto(other.address);
  await composer(page).waitFor();
  await page.getByRole("button", { name: "Settings" }).click();
  const exit = once(other.child, "exit");
  await page.getByRole("button", { name: "End Ouzel" }).click();
  assert.deepEqual(await exit, [0, null]);
  await page.getByText("Ouzel does not answer.").waitFor();
  await leave();
  removeFolder(own);
});
