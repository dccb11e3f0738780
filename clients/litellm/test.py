"""LiteLLM, which speaks both of the server's APIs."""

import asyncio
import json
import unittest

import litellm
import served

# Its advice for every error hides what the tests say.
litellm.suppress_debug_info = True

OPENAI = {"model": f"openai/{served.MODEL}", "api_base": f"{served.URL}/v1", "api_key": served.KEY}
ANTHROPIC = {"model": f"anthropic/{served.MODEL}", "api_base": served.URL, "api_key": served.KEY}
ASK = [{"role": "user", "content": served.QUESTION}]
ASK_WEATHER = [{"role": "user", "content": served.WEATHER_QUESTION}]
TOOL = {
    "type": "function",
    "function": {"name": "weather", "description": "The weather of a city.", "parameters": served.WEATHER},
}


def chat(door=OPENAI, **options):
    return litellm.completion(**{**door, "messages": ASK, "max_tokens": 64, "num_retries": 0, **options})


class Both(unittest.TestCase):
    def test_chat_and_stream_say_the_same(self):
        said = {}
        for name, door in (("openai", OPENAI), ("anthropic", ANTHROPIC)):
            whole = chat(door)
            said[name] = whole.choices[0].message.content
            chunks = list(chat(door, stream=True, stream_options={"include_usage": True}))
            pieces = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices]
            self.assertEqual("".join(piece or "" for piece in pieces), said[name])
            self.assertEqual(whole.choices[0].finish_reason, "stop")
            self.assertGreater(whole.usage.completion_tokens, 0)
            self.assertEqual(whole.usage.prompt_tokens + whole.usage.completion_tokens, whole.usage.total_tokens)
        self.assertEqual(said["openai"], said["anthropic"])
        served.show("chat", [served.QUESTION, said["openai"]])
        served.show("stream", [piece for piece in pieces if piece])

    def test_tool_round(self):
        for door in (OPENAI, ANTHROPIC):
            asked = chat(door, messages=ASK_WEATHER, tools=[TOOL], tool_choice="required")
            message = asked.choices[0].message
            self.assertEqual(asked.choices[0].finish_reason, "tool_calls")
            served.check_weather(self, json.loads(message.tool_calls[0].function.arguments))
            results = [
                {"role": "tool", "tool_call_id": call.id, "name": "weather", "content": served.WEATHER_RESULT}
                for call in message.tool_calls
            ]
            history = [*ASK_WEATHER, message.model_dump(), *results]
            said = chat(door, messages=history, tools=[TOOL], tool_choice="none").choices[0].message
            self.assertFalse(said.tool_calls)
            served.show("tool round", [message.tool_calls[0].function.arguments, said.content])

    def test_streamed_call(self):
        chunks = list(chat(messages=ASK_WEATHER, tools=[TOOL], tool_choice="required", stream=True))
        whole = litellm.stream_chunk_builder(chunks)
        served.check_weather(self, json.loads(whole.choices[0].message.tool_calls[0].function.arguments))

    def test_schema(self):
        form = {"type": "json_schema", "json_schema": {"name": "bird", "schema": served.BIRD, "strict": True}}
        text = chat(response_format=form).choices[0].message.content
        served.check_bird(self, json.loads(text))
        served.show("schema", text)

    def test_async(self):
        said = asyncio.run(litellm.acompletion(**OPENAI, messages=ASK, max_tokens=64))
        self.assertEqual(said.choices[0].message.content, chat().choices[0].message.content)

    def test_cancel(self):
        stream = chat(stream=True, logit_bias=served.ENDLESS, max_tokens=3500)
        next(iter(stream))
        stream.completion_stream.close()
        served.check_idle(self)

    def test_errors(self):
        for door in (OPENAI, ANTHROPIC):
            for kind, options in (
                (litellm.BadRequestError, {"temperature": 3}),
                (litellm.AuthenticationError, {"api_key": "wrong"}),
                (litellm.NotFoundError, {"model": f"{door['model'].split('/')[0]}/other"}),
            ):
                with self.assertRaises(kind) as raised:
                    chat(door, **options)
                served.show("error", str(raised.exception)[:120])
            with self.assertRaises(litellm.ContextWindowExceededError):
                chat(door, messages=[{"role": "user", "content": served.TOO_LONG}])


if __name__ == "__main__":
    unittest.main(verbosity=2)
