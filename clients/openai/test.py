"""The `openai` SDK: chat completions, completions, responses."""

import asyncio
import json
import unittest
from typing import Literal

import openai
import pydantic
import served

CLIENT = openai.OpenAI(base_url=f"{served.URL}/v1", api_key=served.KEY)
ASK = [{"role": "user", "content": served.QUESTION}]
ASK_WEATHER = [
    {"role": "system", "content": "You can ask for the weather."},
    {"role": "user", "content": served.WEATHER_QUESTION},
]
TOOL = {
    "type": "function",
    "function": {"name": "weather", "description": "The weather of a city.", "parameters": served.WEATHER},
}
STRICT = {"type": "function", "function": {**TOOL["function"], "strict": True}}
FLAT = {"type": "function", "strict": True, **TOOL["function"]}


class Bird(pydantic.BaseModel):
    name: Literal["fieldfare", "ouzel", "robin"]
    can_fly: bool
    legs: Literal[0, 2, 4]


def chat(**options):
    return CLIENT.chat.completions.create(**{"model": served.MODEL, "messages": ASK, "max_tokens": 64, **options})


class Chat(unittest.TestCase):
    def test_models(self):
        listed = [model.id for model in CLIENT.models.list()]
        self.assertIn(served.MODEL, listed)
        self.assertEqual(CLIENT.models.retrieve(served.MODEL).id, served.MODEL)

    def test_chat_and_stream_say_the_same(self):
        whole = chat()
        text = whole.choices[0].message.content
        served.show("chat", [served.QUESTION, text])
        self.assertTrue(text)
        self.assertEqual(whole.choices[0].finish_reason, "stop")
        chunks = list(chat(stream=True, stream_options={"include_usage": True}))
        deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
        served.show("stream", [delta.content for delta in deltas if delta.content])
        self.assertEqual(deltas[0].role, "assistant")
        self.assertEqual("".join(delta.content or "" for delta in deltas), text)
        self.assertEqual([chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1], "stop")
        self.assertEqual({chunk.id for chunk in chunks}, {chunks[0].id})
        for usage in (whole.usage, chunks[-1].usage):
            self.assertEqual(usage.prompt_tokens + usage.completion_tokens, usage.total_tokens)
            self.assertEqual(usage.completion_tokens, whole.usage.completion_tokens)
            self.assertLessEqual(usage.prompt_tokens_details.cached_tokens, usage.prompt_tokens)
            self.assertEqual(usage.completion_tokens_details.reasoning_tokens, 0)
        self.assertEqual([chunk.usage for chunk in chunks[:-1]], [None] * (len(chunks) - 1))

    def test_a_limit_ends_an_answer(self):
        short = chat(max_completion_tokens=3, max_tokens=openai.omit)
        self.assertEqual(short.choices[0].finish_reason, "length")
        self.assertEqual(short.usage.completion_tokens, 3)

    def test_sampling(self):
        options = {"temperature": 1, "top_p": 0.9, "seed": 7, "presence_penalty": 0.1, "frequency_penalty": 0.1}
        first, again = chat(**options), chat(**options)
        self.assertEqual(first.choices[0].message.content, again.choices[0].message.content)

    def test_stop(self):
        text = chat().choices[0].message.content
        word = text.split()[2]
        cut = chat(stop=[word])
        self.assertEqual(cut.choices[0].message.content, text[: text.index(word)])
        self.assertEqual(cut.choices[0].finish_reason, "stop")

    def test_logprobs(self):
        for choice in (chat(logprobs=True, top_logprobs=3).choices[0], self.streamed_logprobs()):
            tokens = choice.logprobs.content
            self.assertTrue(choice.message.content.startswith("".join(token.token for token in tokens[:3])))
            for token in tokens:
                self.assertLessEqual(token.logprob, 0)
                self.assertEqual(len(token.top_logprobs), 3)
                # Greedy: the one that was taken is the most likely.
                self.assertEqual(token.top_logprobs[0].token, token.token)
        served.show("logprobs", [[token.token, round(token.logprob, 3)] for token in tokens[:4]])

    def streamed_logprobs(self):
        with CLIENT.chat.completions.stream(
            model=served.MODEL, messages=ASK, max_tokens=64, logprobs=True, top_logprobs=3
        ) as stream:
            return stream.get_final_completion().choices[0]

    def test_many_at_once(self):
        async def ask_all():
            words = ["fieldfare", "thrush", "river", "stone", "window"]
            async with openai.AsyncOpenAI(base_url=f"{served.URL}/v1", api_key=served.KEY) as client:
                asked = [
                    client.chat.completions.create(
                        model=served.MODEL, messages=[{"role": "user", "content": f"What is a {word}?"}], max_tokens=32
                    )
                    for word in words
                ]
                return list(zip(words, await asyncio.gather(*asked)))

        for word, answer in asyncio.run(ask_all()):
            alone = chat(messages=[{"role": "user", "content": f"What is a {word}?"}], max_tokens=32)
            self.assertEqual(answer.choices[0].message.content, alone.choices[0].message.content)

    def test_completions(self):
        whole = CLIENT.completions.create(model=served.MODEL, prompt="A fieldfare is", max_tokens=8)
        pieces = CLIENT.completions.create(model=served.MODEL, prompt="A fieldfare is", max_tokens=8, stream=True)
        text = "".join(piece.choices[0].text for piece in pieces if piece.choices)
        self.assertEqual(text, whole.choices[0].text)

    def test_cancel(self):
        before = served.n_cancelled()
        stream = chat(stream=True, logit_bias=served.ENDLESS, max_tokens=3500)
        for chunk in stream:
            if chunk.choices[0].delta.content:
                break
        stream.close()
        served.check_idle(self)
        self.assertEqual(served.n_cancelled(), before + 1)
        served.show("cancelled", chunk.choices[0].delta.content)


class Tools(unittest.TestCase):
    def test_round(self):
        asked = chat(messages=ASK_WEATHER, tools=[TOOL], tool_choice="required")
        choice = asked.choices[0]
        self.assertEqual(choice.finish_reason, "tool_calls")
        [call] = choice.message.tool_calls[:1]
        served.check_weather(self, json.loads(call.function.arguments))
        results = [
            {"role": "tool", "tool_call_id": call.id, "content": served.WEATHER_RESULT}
            for call in choice.message.tool_calls
        ]
        said = chat(messages=[*ASK_WEATHER, choice.message, *results], tools=[TOOL], tool_choice="none")
        self.assertIsInstance(said.choices[0].message.content, str)
        self.assertIsNone(said.choices[0].message.tool_calls)
        served.show("tool round", [call.function.name, call.function.arguments, said.choices[0].message.content])

    def test_a_named_function_is_called(self):
        other = {"type": "function", "function": {"name": "time", "parameters": {"type": "object", "properties": {}}}}
        named = {"type": "function", "function": {"name": "weather"}}
        asked = chat(messages=ASK_WEATHER, tools=[other, STRICT], tool_choice=named, parallel_tool_calls=False)
        [call] = asked.choices[0].message.tool_calls
        self.assertEqual(call.function.name, "weather")
        served.check_weather(self, json.loads(call.function.arguments))

    def test_stream(self):
        options = {"messages": ASK_WEATHER, "tools": [STRICT], "tool_choice": "required", "parallel_tool_calls": False}
        whole = chat(**options).choices[0].message.tool_calls[0]
        with CLIENT.chat.completions.stream(model=served.MODEL, max_tokens=64, **options) as stream:
            kinds = [event.type for event in stream]
            choice = stream.get_final_completion().choices[0]
        [call] = choice.message.tool_calls
        self.assertEqual(choice.finish_reason, "tool_calls")
        self.assertIn("tool_calls.function.arguments.done", kinds)
        self.assertEqual((call.type, call.function.name), ("function", whole.function.name))
        self.assertEqual(call.function.arguments, whole.function.arguments)
        served.check_weather(self, call.function.parsed_arguments)


class Format(unittest.TestCase):
    def test_schema(self):
        said = CLIENT.chat.completions.parse(
            model=served.MODEL, messages=ASK, max_tokens=64, response_format=Bird
        )
        message = said.choices[0].message
        served.check_bird(self, message.parsed.model_dump())
        served.check_bird(self, json.loads(message.content))
        served.show("schema", message.content)

    def test_object(self):
        said = chat(response_format={"type": "json_object"}, max_tokens=400)
        choice = said.choices[0]
        if choice.finish_reason == "stop":
            self.assertIsInstance(json.loads(choice.message.content), dict)
        else:
            # Texts inside of it have no end that the grammar could enforce.
            self.assertTrue(choice.message.content.lstrip().startswith("{"))


class Responses(unittest.TestCase):
    def test_response_and_stream_say_the_same(self):
        options = {"model": served.MODEL, "input": served.QUESTION, "max_output_tokens": 64}
        whole = CLIENT.responses.create(**options)
        self.assertEqual(whole.status, "completed")
        self.assertEqual(whole.output_text, chat().choices[0].message.content)
        events = list(CLIENT.responses.create(**options, stream=True))
        names = [event.type for event in events]
        self.assertEqual(names[:2], ["response.created", "response.in_progress"])
        self.assertEqual(names[-1], "response.completed")
        self.assertEqual([event.sequence_number for event in events], list(range(len(events))))
        deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
        self.assertEqual("".join(deltas), whole.output_text)
        self.assertEqual(events[-1].response.output_text, whole.output_text)
        with CLIENT.responses.stream(**options) as stream:
            for _ in stream:
                pass
            self.assertEqual(stream.get_final_response().output_text, whole.output_text)
        served.show("responses", list(dict.fromkeys(names)))

    def test_tool_round(self):
        options = {"model": served.MODEL, "tools": [FLAT], "max_output_tokens": 64}
        ask = [{"role": "user", "content": served.WEATHER_QUESTION}]
        asked = CLIENT.responses.create(**options, input=ask, tool_choice="required", parallel_tool_calls=False)
        [call] = [item for item in asked.output if item.type == "function_call"]
        served.check_weather(self, json.loads(call.arguments))
        result = {"type": "function_call_output", "call_id": call.call_id, "output": served.WEATHER_RESULT}
        said = CLIENT.responses.create(**options, input=[*ask, *asked.output, result], tool_choice="none")
        self.assertEqual(said.status, "completed")
        self.assertNotIn("function_call", [item.type for item in said.output])

    def test_schema(self):
        said = CLIENT.responses.parse(
            model=served.MODEL, input=served.QUESTION, max_output_tokens=64, text_format=Bird
        )
        served.check_bird(self, said.output_parsed.model_dump())


class Errors(unittest.TestCase):
    def check(self, kind, status, param, code, **options):
        with self.assertRaises(kind) as raised:
            chat(**options)
        error = raised.exception
        self.assertEqual((error.status_code, error.param, error.code), (status, param, code))
        served.show("error", f"{kind.__name__} {status}: {error.body['message'][:100]}")

    def test_fields(self):
        self.check(openai.BadRequestError, 400, "n", "invalid_value", n=2)
        image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
        ask = [{"role": "user", "content": [image]}]
        self.check(openai.BadRequestError, 400, "messages[0].content[0]", "invalid_value", messages=ask)
        self.check(openai.BadRequestError, 400, "temperature", "invalid_value", temperature=3)
        self.check(openai.BadRequestError, 400, "modalities", "invalid_value", modalities=["text", "audio"])
        self.check(openai.BadRequestError, 400, "mirostat", "invalid_value", extra_body={"mirostat": 2})

    def test_a_prompt_that_is_too_long(self):
        ask = [{"role": "user", "content": served.TOO_LONG}]
        for stream in (False, True):
            code = "context_length_exceeded"
            self.check(openai.BadRequestError, 400, "messages", code, messages=ask, stream=stream)

    def test_another_model(self):
        self.check(openai.NotFoundError, 404, "model", "model_not_found", model="gpt-5")

    def test_another_key(self):
        stranger = CLIENT.with_options(api_key="wrong")
        with self.assertRaises(openai.AuthenticationError) as raised:
            stranger.chat.completions.create(model=served.MODEL, messages=ASK)
        self.assertEqual((raised.exception.status_code, raised.exception.code), (401, "invalid_api_key"))

    def test_embeddings(self):
        with self.assertRaises(openai.InternalServerError) as raised:
            CLIENT.embeddings.create(model=served.MODEL, input="fieldfare")
        self.assertEqual(raised.exception.status_code, 501)


if __name__ == "__main__":
    unittest.main(verbosity=2)
