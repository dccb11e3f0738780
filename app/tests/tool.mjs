// `ouzel app` with the bundled model in a folder of its own, and a browser that holds its page to what is promised: nothing is asked of another
// host, and nothing is complained of.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { chromium } from "playwright-core";

const BINARY = process.env.OUZEL_BINARY;
const SHOTS = process.env.OUZEL_SHOTS;
const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** Longer than anything here takes on a busy machine; nothing is asserted on time. */
export const PATIENCE_MS = 30_000;

export const newFolder = () => mkdtempSync(join(tmpdir(), "ouzel-page-"));
export const removeFolder = (folder) => rmSync(folder, { recursive: true, force: true });

/** A running `ouzel app`. */
export class Ouzel {
  static async start(folder, { port = 0, args = ["demo"], env = {} } = {}) {
    const child = spawn(BINARY, ["app", ...args, "--no-open", "--port", String(port)], {
      env: {
        ...env,
        PATH: process.env.PATH,
        HOME: folder,
        OUZEL_MODELS: join(folder, "models"),
        OUZEL_CACHE: join(folder, "cache"),
        OUZEL_RUNTIME: join(folder, "running"),
        OUZEL_PREFIXES: join(folder, "prefixes"),
        OUZEL_CHATS: join(folder, "chats"),
      },
      stdio: ["ignore", "ignore", "pipe"],
    });
    const said = [];
    for await (const line of createInterface({ input: child.stderr })) {
      said.push(line);
      const address = /the page is at (http:\S+)/.exec(line)?.[1];
      if (address) {
        // Further lines are read, so that it never waits for a reader.
        child.stderr.resume();
        return new Ouzel(child, address);
      }
    }
    throw new Error(`ouzel app did not start:\n${said.join("\n")}`);
  }

  constructor(child, address) {
    this.child = child;
    /** With the token. */
    this.address = address;
    this.url = address.split("#")[0];
    this.port = Number(new URL(address).port);
  }

  /** As Ctrl-C or a system that shuts down does. */
  async end() {
    if (this.child.exitCode !== null || this.child.signalCode !== null) return;
    this.child.kill("SIGTERM");
    const [code] = await once(this.child, "exit");
    assert.equal(code, 0, "ouzel app ends well");
  }

  /** As a power cut does. */
  async kill() {
    this.child.kill("SIGKILL");
    await once(this.child, "exit");
  }
}

export const launch = () =>
  chromium.launch({ executablePath: process.env.OUZEL_CHROMIUM || undefined, args: process.getuid?.() === 0 ? ["--no-sandbox"] : [] });

/** A browser of a person: its own cookies, and a list of everything that it complained of. */
export async function person(browser, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, locale: "en-GB", ...options });
  await context.grantPermissions(["clipboard-read", "clipboard-write"]);
  context.setDefaultTimeout(PATIENCE_MS);
  const page = await context.newPage();
  const complaints = [];
  page.on("pageerror", (error) => complaints.push(String(error)));
  page.on("console", (message) => {
    // A server that is ended and refusals that a test provokes are the network's errors, not the page's.
    if (message.type() === "error" && !/Failed to load resource|ERR_/.test(message.text())) complaints.push(message.text());
  });
  page.on("request", (request) => {
    const { protocol, hostname } = new URL(request.url());
    if (protocol !== "blob:" && hostname !== "127.0.0.1") complaints.push(`asked of another host: ${request.url()}`);
  });
  return {
    page,
    async leave() {
      await context.close();
      assert.deepEqual(complaints, []);
    },
  };
}

/** No finding of axe that is serious or worse, in what is on the screen now. */
export async function accessible(page, what) {
  // The policy of the page lets no script in but its own; the driver's way of evaluating is beside it.
  await page.evaluate(AXE);
  const { violations } = await page.evaluate(() => globalThis.axe.run(document));
  const serious = violations.filter(({ impact }) => impact === "serious" || impact === "critical");
  const told = serious.map(({ id, nodes }) => `${id}: ${nodes.map((node) => `${node.html} ${node.failureSummary ?? ""}`).join("\n  ")}`);
  assert.deepEqual(told, [], what);
}

export async function shot(page, name) {
  if (SHOTS) await page.screenshot({ path: join(SHOTS, `${name}.png`), animations: "disabled" });
}

export const composer = (page) => page.getByRole("textbox", { name: "Message" });
export const answers = (page) => page.getByRole("article", { name: "Model" });

/** A conversation with nothing in it. */
export async function newChat(page) {
  await page.getByRole("button", { name: "New chat" }).click();
  await page.getByRole("heading", { name: "What would you like to know?" }).waitFor();
}

/** Asks and waits for the end of the answer. */
export async function ask(page, text) {
  const n = await answers(page).count();
  await composer(page).fill(text);
  await composer(page).press("Enter");
  await ended(page, n);
}

/** The n-th answer has come to its end. */
export async function ended(page, n) {
  await answers(page).nth(n).locator(".end, .problem").first().waitFor();
  return answers(page).nth(n);
}
