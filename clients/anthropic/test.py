"""The `anthropic` SDK: messages and count_tokens."""

import json
import unittest
from typing import Literal

import anthropic
import pydantic
import served

CLIENT = anthropic.Anthropic(base_url=served.URL, api_key=served.KEY)
ASK = [{"role": "user", "content": served.QUESTION}]
ASK_WEATHER = [{"role": "user", "content": served.WEATHER_QUESTION}]
TOOL = {"name": "weather", "description": "The weather of a city.", "input_schema": served.WEATHER}
# What the answers here are: the SDK's streams say no more events than these in between.
ORDER = ["message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta", "message_stop"]


class Bird(pydantic.BaseModel):
    name: Literal["fieldfare", "ouzel", "robin"]
    can_fly: bool
    legs: Literal[0, 2, 4]


def ask(**options):
    return CLIENT.messages.create(**{"model": served.MODEL, "messages": ASK, "max_tokens": 64, **options})


def n_prompt(usage):
    return usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens


class Messages(unittest.TestCase):
    def test_message_and_stream_say_the_same(self):
        whole = ask()
        [block] = whole.content
        self.assertEqual((block.type, whole.stop_reason), ("text", "end_turn"))
        self.assertTrue(block.text)
        served.show("message", [served.QUESTION, block.text])
        with CLIENT.messages.stream(model=served.MODEL, messages=ASK, max_tokens=64) as stream:
            pieces = list(stream.text_stream)
            final = stream.get_final_message()
        served.show("stream", pieces)
        self.assertEqual("".join(pieces), block.text)
        self.assertEqual(final.content[0].text, block.text)
        self.assertEqual(final.stop_reason, "end_turn")
        for usage in (whole.usage, final.usage):
            self.assertEqual(usage.output_tokens, whole.usage.output_tokens)
            self.assertEqual(n_prompt(usage), n_prompt(whole.usage))

    def test_order_of_events(self):
        names = [event.type for event in ask(stream=True)]
        self.assertEqual([name for name in dict.fromkeys(names) if name != "ping"], ORDER)
        served.show("events", list(dict.fromkeys(names)))

    def test_system_blocks_and_limits(self):
        system = [{"type": "text", "text": "You are a dictionary.", "cache_control": {"type": "ephemeral"}}]
        # The SDK has no words any more for how tokens are chosen; the server still does.
        sampling = {"temperature": 0, "top_k": 5, "top_p": 0.9}
        short = ask(system=system, max_tokens=3, metadata={"user_id": "someone"}, extra_body=sampling)
        self.assertEqual((short.stop_reason, short.usage.output_tokens), ("max_tokens", 3))
        text = ask().content[0].text
        word = text.split()[2]
        cut = ask(stop_sequences=[word])
        self.assertEqual((cut.stop_reason, cut.stop_sequence), ("stop_sequence", word))
        self.assertEqual(cut.content[0].text, text[: text.index(word)])

    def test_count_tokens(self):
        options = {"system": "You are a dictionary.", "tools": [TOOL]}
        counted = CLIENT.messages.count_tokens(model=served.MODEL, messages=ASK, **options)
        self.assertEqual(counted.input_tokens, n_prompt(ask(**options, max_tokens=1).usage))

    def test_models(self):
        self.assertIn(served.MODEL, [model.id for model in CLIENT.models.list()])
        self.assertEqual(CLIENT.models.retrieve(served.MODEL).id, served.MODEL)

    def test_bearer(self):
        bearer = anthropic.Anthropic(base_url=served.URL, auth_token=served.KEY, api_key=None)
        self.assertTrue(bearer.messages.create(model=served.MODEL, messages=ASK, max_tokens=4).content)

    def test_cancel(self):
        with CLIENT.messages.stream(model=served.MODEL, messages=ASK, max_tokens=3500) as stream:
            next(iter(stream.text_stream))
        served.check_idle(self)


class Tools(unittest.TestCase):
    def test_round(self):
        asked = ask(messages=ASK_WEATHER, tools=[TOOL], tool_choice={"type": "any"})
        self.assertEqual(asked.stop_reason, "tool_use")
        calls = [block for block in asked.content if block.type == "tool_use"]
        served.check_weather(self, calls[0].input)
        results = [{"type": "tool_result", "tool_use_id": call.id, "content": served.WEATHER_RESULT} for call in calls]
        history = [*ASK_WEATHER, {"role": "assistant", "content": asked.content}, {"role": "user", "content": results}]
        said = ask(messages=history, tools=[TOOL], tool_choice={"type": "none"})
        self.assertEqual({block.type for block in said.content} - {"text"}, set())
        served.show("tool round", [calls[0].name, calls[0].input, [block.text for block in said.content]])

    def test_stream(self):
        choice = {"type": "tool", "name": "weather", "disable_parallel_tool_use": True}
        options = {"messages": ASK_WEATHER, "tools": [TOOL], "tool_choice": choice}
        whole = ask(**options)
        with CLIENT.messages.stream(model=served.MODEL, max_tokens=64, **options) as stream:
            parts = [event.partial_json for event in stream if event.type == "input_json"]
            final = stream.get_final_message()
        [call] = final.content
        self.assertEqual((call.type, final.stop_reason), ("tool_use", "tool_use"))
        self.assertEqual(call.input, json.loads("".join(parts)))
        self.assertEqual(call.input, whole.content[-1].input)
        served.check_weather(self, call.input)


class Format(unittest.TestCase):
    def test_schema(self):
        said = CLIENT.messages.parse(model=served.MODEL, messages=ASK, max_tokens=64, output_format=Bird)
        served.check_bird(self, said.parsed_output.model_dump())
        served.show("schema", said.content[0].text)


class Errors(unittest.TestCase):
    def check(self, kind, status, name, **options):
        with self.assertRaises(kind) as raised:
            ask(**options)
        error = raised.exception
        self.assertEqual((error.status_code, error.body["error"]["type"]), (status, name))
        served.show("error", f"{kind.__name__} {status}: {error.body['error']['message'][:100]}")
        return error.body["error"]["message"]

    def test_fields(self):
        kind, name = anthropic.BadRequestError, "invalid_request_error"
        self.assertIn("temperature", self.check(kind, 400, name, extra_body={"temperature": 3}))
        source = {"type": "base64", "media_type": "image/png", "data": "AA=="}
        image = [{"role": "user", "content": [{"type": "image", "source": source}]}]
        self.assertIn("messages[0].content[0]", self.check(kind, 400, name, messages=image))
        servers = {"mcp_servers": [{"name": "x", "type": "url", "url": "http://127.0.0.1"}]}
        self.assertIn("mcp_servers", self.check(kind, 400, name, extra_body=servers))

    def test_a_prompt_that_is_too_long(self):
        long = [{"role": "user", "content": served.TOO_LONG}]
        said = self.check(anthropic.BadRequestError, 400, "invalid_request_error", messages=long)
        # Claude Code reads both numbers.
        self.assertRegex(said, r"^prompt is too long: \d+ tokens > 4095 maximum")

    def test_another_model(self):
        self.check(anthropic.NotFoundError, 404, "not_found_error", model="claude-opus-4")

    def test_another_key(self):
        stranger = CLIENT.with_options(api_key="wrong")
        with self.assertRaises(anthropic.AuthenticationError) as raised:
            stranger.messages.create(model=served.MODEL, messages=ASK, max_tokens=4)
        self.assertEqual(raised.exception.status_code, 401)


if __name__ == "__main__":
    unittest.main(verbosity=2)
