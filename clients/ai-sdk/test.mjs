// The AI SDK with `@ai-sdk/openai-compatible`, as OpenCode and many front ends use it.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { APICallError, generateText, Output, stepCountIs, streamText, tool } from 'ai';
import { z } from 'zod';

const { OUZEL_URL: url, OUZEL_KEY: key, OUZEL_MODEL: name } = process.env;
const QUESTION = 'What is a fieldfare?';
const WEATHER_QUESTION = 'What is the weather in Oslo, in celsius?';
// With these an answer never ends by itself: the model's stop tokens get less likely than any other.
const ENDLESS = { 1: -100, 50: -100, 106: -100 };

const provider = (apiKey = key, extra = {}) =>
  createOpenAICompatible({
    name: 'ouzel',
    baseURL: `${url}/v1`,
    apiKey,
    includeUsage: true,
    supportsStructuredOutputs: true,
    transformRequestBody: body => ({ ...body, ...extra }),
  });
const model = provider()(name);
const bird = z.object({
  name: z.enum(['fieldfare', 'ouzel', 'robin']),
  can_fly: z.boolean(),
  legs: z.union([z.literal(0), z.literal(2), z.literal(4)]),
});
const place = z.object({ city: z.enum(['Oslo', 'Bergen']), unit: z.enum(['celsius', 'fahrenheit']) });
const weather = tool({
  description: 'The weather of a city.',
  inputSchema: place,
  execute: async ({ city }) => ({ city, degrees: 3, sky: 'snow' }),
});
// First a call, then an answer.
const round = ({ stepNumber }) => ({ toolChoice: stepNumber === 0 ? 'required' : 'none' });

const show = (what, said) => console.log(`    ${what}: ${JSON.stringify(said)}`);

async function metric(sample) {
  const page = await fetch(`${url}/metrics`, { headers: { authorization: `Bearer ${key}` } });
  const line = (await page.text()).split('\n').find(line => line.startsWith(`ouzel_${sample} `));
  assert(line, `${sample} is not among the server's metrics`);
  return Number(line.split(' ').at(-1));
}

async function checkIdle() {
  for (let i = 0; i < 100; i++) {
    if ((await metric('turns_live')) === 0 && (await metric('turns_running')) === 0) return;
    await new Promise(resolve => setTimeout(resolve, 100));
  }
  assert.fail('turns are left, 10 s after the client went away');
}

async function refused(status, check, options) {
  await assert.rejects(generateText({ model, prompt: QUESTION, maxRetries: 0, ...options }), error => {
    assert(APICallError.isInstance(error), String(error));
    assert.equal(error.statusCode, status);
    check(JSON.parse(error.responseBody).error);
    show('error', `${status}: ${error.message.slice(0, 100)}`);
    return true;
  });
}

test('text and stream say the same', async () => {
  const whole = await generateText({ model, prompt: QUESTION, maxOutputTokens: 64 });
  assert(whole.text);
  assert.equal(whole.finishReason, 'stop');
  assert.equal(whole.usage.inputTokens + whole.usage.outputTokens, whole.usage.totalTokens);
  const stream = streamText({ model, prompt: QUESTION, maxOutputTokens: 64 });
  const pieces = [];
  for await (const piece of stream.textStream) pieces.push(piece);
  assert.equal(pieces.join(''), whole.text);
  assert.equal((await stream.usage).outputTokens, whole.usage.outputTokens);
  assert.equal(await stream.finishReason, 'stop');
  show('text', [QUESTION, whole.text]);
  show('stream', pieces);
});

test('a tool is called and answered to', async () => {
  const options = { model, tools: { weather }, prompt: WEATHER_QUESTION, maxOutputTokens: 64 };
  const whole = await generateText({ ...options, prepareStep: round, stopWhen: stepCountIs(2) });
  const [first, second] = whole.steps;
  assert.equal(first.finishReason, 'tool-calls');
  place.parse(first.toolCalls[0].input);
  assert.equal(first.toolResults[0].output.sky, 'snow');
  assert.deepEqual(second.toolCalls, []);
  show('tool round', [first.toolCalls[0].input, second.text]);
  const stream = streamText({ ...options, prepareStep: round, stopWhen: stepCountIs(2) });
  await stream.consumeStream();
  const steps = await stream.steps;
  assert.deepEqual(steps[0].toolCalls[0].input, first.toolCalls[0].input);
  assert.equal(steps[1].text, second.text);
});

test('an answer follows a schema', async () => {
  const output = Output.object({ schema: bird });
  const whole = await generateText({ model, output, prompt: QUESTION, maxOutputTokens: 64 });
  bird.parse(whole.output);
  const stream = streamText({ model, output, prompt: QUESTION, maxOutputTokens: 64 });
  await stream.consumeStream();
  assert.deepEqual(await stream.output, whole.output);
  show('schema', whole.output);
});

test('errors have their status', async () => {
  await refused(400, error => assert.equal(error.param, 'temperature'), { temperature: 3 });
  const code = expected => error => assert.equal(error.code, expected);
  await refused(400, code('context_length_exceeded'), { prompt: 'fieldfare '.repeat(6000) });
  await refused(404, code('model_not_found'), { model: provider()('other') });
  await refused(401, code('invalid_api_key'), { model: provider('wrong')(name) });
});

test('a stream that is given up ends its turn', async () => {
  const before = await metric('turns_total{end="cancelled"}');
  const abort = new AbortController();
  const endless = provider(key, { logit_bias: ENDLESS })(name);
  const stream = streamText({ model: endless, prompt: QUESTION, maxOutputTokens: 3500, abortSignal: abort.signal });
  for await (const piece of stream.textStream) {
    if (piece) break;
  }
  abort.abort();
  await checkIdle();
  assert.equal(await metric('turns_total{end="cancelled"}'), before + 1);
});
