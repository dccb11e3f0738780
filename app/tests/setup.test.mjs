// The first run, choosing a model, and what it may take, in a real browser against the real program. A download needs a hub on loopback, whose address
// OUZEL_TEST_HUB has: `cargo xtask hub` is one.

import assert from "node:assert/strict";
import { readdirSync, statSync } from "node:fs";
import { open } from "node:fs/promises";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { accessible, answers, ask, composer, ended, launch, newFolder, Ouzel, PATIENCE_MS, person, removeFolder, shot } from "./tool.mjs";

const HUB = process.env.OUZEL_TEST_HUB;
/** What the hub of `cargo xtask hub` has. */
const OFFERED = ["--repo", "ouzel/synthetic", "--revision", "5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed"];

let browser;
let folder;
let ouzel;
/** Whoever opened the page of the program that runs now. */
let visitor;
before(async () => {
  browser = await launch();
  folder = newFolder();
});
after(async () => {
  await browser?.close();
  await ouzel?.end();
  if (folder) removeFolder(folder);
});

/** Starts the program, after the one that ran before if one did, and opens its page. */
async function begin(args = [], env = {}) {
  await visitor?.leave();
  visitor = undefined;
  await ouzel?.end();
  ouzel = await Ouzel.start(folder, { args, env });
  visitor = await person(browser);
  await visitor.page.goto(ouzel.address);
  return visitor.page;
}

const firstRun = (page) => page.getByRole("heading", { name: "Which model shall answer?" });
const dialog = (page) => page.getByRole("dialog", { name: "Model and memory" });
const memory = (page) => dialog(page).getByRole("spinbutton", { name: "Memory, in GiB" });
const context = (page) => dialog(page).getByRole("spinbutton", { name: "Context, in tokens" });
const resolved = (page) => dialog(page).getByRole("region", { name: "What that gives" }).and(page.locator("[aria-busy=false]"));

/** Opens the dialog by the model's name in the line at the foot. */
async function choose(page, name) {
  await page.locator("footer").getByRole("button", { name, exact: true }).click();
  await dialog(page).waitFor();
}

/** Asks the server as the page does. */
const asked = (page, path, body) =>
  page.evaluate(async ([path, body]) => {
    const init = body && { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
    return (await fetch(path, init ?? {})).json();
  }, [path, body]);

test("where no model is chosen the page says what there is, and the bundled one answers at once", async () => {
  const page = await begin();
  await firstRun(page).waitFor();
  assert.equal(await composer(page).count(), 0, "nothing can be asked");
  await page.getByText("Free disk").waitFor();
  const { models, chosen } = await asked(page, "/app/models");
  assert.deepEqual([models.map(({ name }) => name), chosen], [["demo"], null]);
  assert.equal((await asked(page, "/app/install")).offer, null, "nobody was asked");
  await accessible(page, "first run");
  await shot(page, "first-run");
  await page.getByRole("button", { name: "Try the bundled demo model" }).click();
  await page.getByRole("heading", { name: "What would you like to know?" }).waitFor();
  await ask(page, "What is a fieldfare?");
  assert.match(await answers(page).first().innerText(), /thrush/i);
});

test("what memory buys is said before the model is loaded anew with it", async () => {
  const { page } = visitor;
  await choose(page, "demo");
  await resolved(page).waitFor();
  await dialog(page).getByText("The model is in memory with these values.").waitFor();
  const reload = dialog(page).getByRole("button", { name: "Reload with these values" });
  assert.ok(await reload.isDisabled());
  const usual = await asked(page, "/app/plan", { model: "demo" });
  await context(page).fill("1024");
  await memory(page).fill("0.25");
  const planned = await asked(page, "/app/plan", { model: "demo", memory_bytes: 2 ** 28, context: 1024 });
  assert.notDeepEqual(planned.plan, usual.plan);
  await resolved(page).getByText(`${planned.slots.toLocaleString("en")} in all`).waitFor();
  await resolved(page).getByText("1,024 of at most").waitFor();
  await dialog(page).getByText(/^Fits: .* are free\.$/).waitFor();
  await dialog(page).getByText("A change takes effect when the model is loaded anew").waitFor();
  await dialog(page).locator("summary").filter({ hasText: "How the memory is spent" }).click();
  await accessible(page, "models");
  await shot(page, "models");
  await reload.click();
  await dialog(page).waitFor({ state: "detached" });
  const status = await asked(page, "/app/status");
  assert.deepEqual([status.is_loaded, status.slots, status.context], [true, planned.slots, 1024]);
});

test("the slider and the field say the same, and the keyboard moves both", async () => {
  const { page } = visitor;
  await choose(page, "demo");
  await resolved(page).waitFor();
  const before = Number(await memory(page).inputValue());
  await dialog(page).getByRole("slider", { name: "Memory" }).focus();
  await page.keyboard.press("ArrowRight");
  await page.keyboard.press("ArrowRight");
  const after = Number(await memory(page).inputValue());
  assert.ok(after > before, `${after} after ${before}`);
  await page.keyboard.press("Home");
  await resolved(page).waitFor();
  assert.equal(await memory(page).getAttribute("aria-invalid"), "false", "the slider offers nothing that is refused");
  await page.keyboard.press("Escape");
  await dialog(page).waitFor({ state: "detached" });
});

test("what cannot be had is refused at its field, and loads nothing", async () => {
  const { page } = visitor;
  await choose(page, "demo");
  await resolved(page).waitFor();
  const reload = dialog(page).getByRole("button", { name: "Reload with these values" });
  for (const [field, value, why] of [[memory, "0.001", /at least/], [context, "100000000", /100000000/], [context, "0", /no number/]]) {
    const kept = await field(page).inputValue();
    await field(page).fill(value);
    await field(page).locator("xpath=..").getByRole("alert").filter({ hasText: why }).waitFor();
    assert.equal(await field(page).getAttribute("aria-invalid"), "true");
    assert.ok(await reload.isDisabled());
    await accessible(page, `refused: ${value}`);
    await field(page).fill(kept);
    await resolved(page).waitFor();
  }
  await shot(page, "models-after-refusals");
  await page.keyboard.press("Escape");
  await ask(page, "What is a thrush?");
});

test("the machine is measured when a person says so, and its speed is foretold", async () => {
  const { page } = visitor;
  await choose(page, "demo");
  await resolved(page).getByRole("button", { name: "Measure this machine" }).click();
  await resolved(page).getByText(/writes about [\d,.]+ tokens\/s, reads about [\d,.]+ tokens\/s/).waitFor();
  await dialog(page).getByRole("button", { name: "Unload the model" }).click();
  await dialog(page).getByText("ready").waitFor();
  await page.keyboard.press("Escape");
  await ask(page, "What is a moor?");
  assert.equal((await asked(page, "/app/status")).is_loaded, true, "a question loads it again");
});

test("what was chosen is there again after a restart", async () => {
  const page = await begin();
  await composer(page).waitFor();
  const status = await asked(page, "/app/status");
  assert.deepEqual([status.model, status.context], ["demo", 1024]);
  await choose(page, "demo");
  await resolved(page).waitFor();
  assert.deepEqual([await memory(page).inputValue(), await context(page).inputValue()], ["0.25", "1024"]);
  await page.keyboard.press("Escape");
});

test("without a model conversations can be read, and nothing can be asked", async () => {
  await visitor.page.evaluate(() => fetch("/app/settings", { method: "PUT", headers: { "content-type": "application/json" }, body: "{}" }));
  const page = await begin();
  await firstRun(page).waitFor();
  await page.getByRole("link", { name: "What is a fieldfare?" }).click();
  await ended(page, 0);
  assert.ok(await composer(page).isDisabled());
  assert.equal(await page.getByRole("button", { name: "Answer again" }).count(), 0);
  await accessible(page, "no model");
  await shot(page, "no-model");
  await page.getByRole("main").locator("form").getByRole("button", { name: "Choose a model" }).click();
  await dialog(page).waitFor();
  await page.keyboard.press("Escape");
});

test("the choice fits every screen, light and dark, in both languages", async () => {
  const { page } = visitor;
  await page.getByRole("button", { name: "New chat" }).click();
  const sizes = { narrow: [320, 640], tablet: [820, 1180], laptop: [1280, 800], huge: [3840, 2160] };
  for (const colorScheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme });
    for (const [name, [width, height]] of Object.entries(sizes)) {
      await page.setViewportSize({ width, height });
      const overflow = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      assert.ok(overflow <= 0, `${name}: ${overflow} pixels too wide`);
      await accessible(page, `first run, ${name}, ${colorScheme}`);
      await shot(page, `first-run-${name}-${colorScheme}`);
    }
  }
  await page.setViewportSize({ width: 320, height: 640 });
  await page.getByRole("button", { name: "Open the list of conversations" }).click();
  await page.getByRole("button", { name: "Settings" }).click();
  await page.getByLabel("Language").selectOption("de");
  await page.getByRole("button", { name: "Modell und Speicher …" }).click();
  const german = page.getByRole("dialog", { name: "Modell und Speicher" });
  await german.getByRole("region", { name: "Was das ergibt" }).waitFor();
  await accessible(page, "models, narrow, German");
  await shot(page, "models-narrow-dark");
  await page.keyboard.press("Escape");
  await page.evaluate(() => fetch("/app/settings", { method: "PUT", headers: { "content-type": "application/json" }, body: "{}" }));
});

test("a conversation that outgrows the context goes on without its oldest turns, elsewhere, or with a larger one", async () => {
  const page = await begin(["demo", "--max-context", "140"]);
  const long = "Tell me all about thrushes, blackbirds, fieldfares and other songbirds of the garden. ".repeat(3);
  await ask(page, "What is a thrush?");
  await composer(page).fill(long);
  await page.keyboard.press("Enter");
  const ways = page.getByRole("group", { name: "What can be done" });
  await ways.waitFor();
  await accessible(page, "overflow");
  await shot(page, "overflow");
  await ways.getByRole("button", { name: "Answer without the oldest turns" }).click();
  await page.getByText("The model was not given the oldest 2 messages").waitFor();
  assert.equal((await answers(page).all()).length, 2, "what it was not given is there all the same");
  // What was left out once may be left out again without a question.
  await composer(page).fill(long);
  await page.keyboard.press("Enter");
  await page.getByText("The model was not given the oldest 4 messages").waitFor();
  const whole = long.repeat(3);
  await composer(page).fill(whole);
  await page.keyboard.press("Enter");
  await ways.waitFor();
  await ways.getByRole("button", { name: "Ask it in a new chat" }).click();
  await page.waitForFunction(() => document.getElementById("composer").value !== "");
  assert.equal((await composer(page).inputValue()).trim(), whole.trim());
  await page.keyboard.press("Enter");
  await ways.waitFor();
  assert.equal(await ways.getByRole("button").count(), 1, "there are no older turns, and it is a new chat already");
  await ways.getByRole("button", { name: /^Load with [\d,]+ tokens of context/ }).click();
  await ways.waitFor({ state: "detached" });
  await ended(page, 0);
  assert.ok((await asked(page, "/app/status")).context > 140);
  // What follows begins without a choice.
  await page.evaluate(() => fetch("/app/settings", { method: "PUT", headers: { "content-type": "application/json" }, body: "{}" }));
});

const skip = HUB ? false : "OUZEL_TEST_HUB has no hub's address";
const fetching = (page) => page.getByRole("progressbar", { name: "Downloading" }).first();
const main = (page) => page.getByRole("main");

/** Waits until some of it has come, but not all. */
async function partOf(page) {
  await page.waitForFunction(() => Number(document.querySelector("[role=progressbar]")?.getAttribute("aria-valuenow") ?? 0) >= 5);
}

async function pause(page) {
  await main(page).getByRole("button", { name: "Pause" }).click();
  await main(page).getByText("Paused").waitFor();
}

test("a download is begun by a person, paused, discarded, and survives a reload and a restart", { skip }, async () => {
  const page = await begin(OFFERED, { HF_ENDPOINT: HUB });
  await firstRun(page).waitFor();
  await main(page).getByRole("button", { name: `Ask ${new URL(HUB).host}` }).click();
  await main(page).getByText("To be fetched").waitFor();
  await main(page).getByText("enough", { exact: true }).waitFor();
  await accessible(page, "offered");
  await shot(page, "offered");
  await main(page).getByRole("button", { name: "Download" }).click();
  await partOf(page);
  await accessible(page, "downloading");
  await shot(page, "downloading");
  await pause(page);
  await main(page).getByRole("button", { name: "Discard" }).click();
  const question = page.getByRole("dialog", { name: "Discard what has come?" });
  await accessible(page, "discard");
  await question.getByRole("button", { name: "Keep" }).click();
  await main(page).getByText("Paused").waitFor();
  await main(page).getByRole("button", { name: "Discard" }).click();
  await question.getByRole("button", { name: "Discard" }).click();
  await main(page).getByRole("button", { name: "Download" }).click();
  await partOf(page);
  await page.reload();
  await fetching(page).waitFor();
  await page.locator("footer").getByRole("button", { name: /^Downloading \d+ %$/ }).waitFor();
  await pause(page);
  await page.reload();
  await main(page).getByText("Paused").waitFor();
  const again = await begin(OFFERED, { HF_ENDPOINT: HUB });
  await main(again).getByText("Paused").waitFor();
  await accessible(again, "paused");
  await shot(again, "paused");
});

test("it goes on where it was, is verified, and the model answers", { skip }, async () => {
  const { page } = visitor;
  await main(page).getByRole("button", { name: "Resume" }).click();
  await fetching(page).waitFor();
  await main(page).getByText("every byte of it is right").waitFor({ timeout: 10 * PATIENCE_MS });
  await accessible(page, "downloaded");
  await shot(page, "downloaded");
  await main(page).getByRole("button", { name: "Open the model" }).click();
  await resolved(page).waitFor();
  await dialog(page).getByRole("button", { name: "Load", exact: true }).click();
  await dialog(page).waitFor({ state: "detached" });
  await ask(page, "What is a thrush?");
  assert.equal((await asked(page, "/app/models")).chosen, "synthetic");
});

/** Changes a byte in the middle of the largest file of a model. */
async function damage(model) {
  const files = readdirSync(model, { recursive: true }).map((name) => join(model, name)).filter((path) => statSync(path).isFile());
  const largest = files.sort((one, other) => statSync(other).size - statSync(one).size)[0];
  const file = await open(largest, "r+");
  const [byte, at] = [Buffer.alloc(1), Math.floor(statSync(largest).size / 2)];
  await file.read(byte, 0, 1, at);
  await file.write(Buffer.from([byte[0] ^ 1]), 0, 1, at);
  await file.close();
}

test("a model's files are verified, found damaged, and repaired", { skip }, async () => {
  const { page } = visitor;
  const verify = () => dialog(page).getByRole("button", { name: "Verify files" }).click();
  await choose(page, "synthetic");
  await verify();
  await dialog(page).getByText("synthetic is there, and every byte of it is right.").waitFor();
  await damage(join(folder, "models", "synthetic.gturbo"));
  await verify();
  await dialog(page).getByText("synthetic is damaged.").waitFor();
  await accessible(page, "damaged");
  await shot(page, "damaged");
  await dialog(page).getByRole("button", { name: "Repair" }).click();
  await dialog(page).getByText("synthetic is there, and every byte of it is right.").waitFor();
  // It answered before, and does again.
  await page.waitForFunction(async () => (await (await fetch("/app/status")).json()).is_loaded);
  assert.equal((await asked(page, "/app/models")).chosen, "synthetic");
  await page.keyboard.press("Escape");
  await ask(page, "What is a thrush?");
  await visitor.leave();
  visitor = undefined;
});
