"""LangChain's `ChatOpenAI`."""

import unittest
from typing import Literal

import openai
import pydantic
import served
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI


def model(**options):
    base = {"model": served.MODEL, "base_url": f"{served.URL}/v1", "api_key": served.KEY, "max_tokens": 64, "max_retries": 0}
    return ChatOpenAI(**{**base, **options})


class Bird(pydantic.BaseModel):
    """A bird."""

    name: Literal["fieldfare", "ouzel", "robin"]
    can_fly: bool
    legs: Literal[0, 2, 4]


@tool
def weather(city: Literal["Oslo", "Bergen"], unit: Literal["celsius", "fahrenheit"]) -> str:
    """The weather of a city."""
    return served.WEATHER_RESULT


class Chat(unittest.TestCase):
    def test_chat_and_stream_say_the_same(self):
        said = model().invoke(served.QUESTION)
        self.assertTrue(said.content)
        self.assertEqual(said.response_metadata["finish_reason"], "stop")
        usage = said.usage_metadata
        self.assertEqual(usage["input_tokens"] + usage["output_tokens"], usage["total_tokens"])
        chunks = list(model(stream_usage=True).stream(served.QUESTION))
        self.assertEqual("".join(chunk.content for chunk in chunks), said.content)
        usages = [chunk.usage_metadata for chunk in chunks if chunk.usage_metadata]
        self.assertEqual([one["output_tokens"] for one in usages], [usage["output_tokens"]])
        served.show("chat", [served.QUESTION, said.content])
        served.show("stream", [chunk.content for chunk in chunks if chunk.content])

    def test_responses(self):
        said = model(use_responses_api=True).invoke(served.QUESTION)
        self.assertEqual(said.text, model().invoke(served.QUESTION).content)

    def test_tool_round(self):
        bound = model().bind_tools([weather], tool_choice="any", parallel_tool_calls=False)
        question = HumanMessage(served.WEATHER_QUESTION)
        asked = bound.invoke([question])
        [call] = asked.tool_calls
        served.check_weather(self, call["args"])
        result = weather.invoke(call)
        self.assertIsInstance(result, ToolMessage)
        said = model().bind_tools([weather], tool_choice="none").invoke([question, asked, result])
        self.assertEqual(said.tool_calls, [])
        served.show("tool round", [call["name"], call["args"], said.content])

    def test_streamed_call(self):
        whole = None
        for chunk in model().bind_tools([weather], tool_choice="weather").stream(served.WEATHER_QUESTION):
            whole = chunk if whole is None else whole + chunk
        served.check_weather(self, whole.tool_calls[0]["args"])

    def test_schema(self):
        for method in ("json_schema", "function_calling"):
            bird = model().with_structured_output(Bird, method=method).invoke(served.QUESTION)
            served.check_bird(self, bird.model_dump())
            served.show(f"schema by {method}", bird.model_dump())

    def test_batch(self):
        questions = [f"What is a {word}?" for word in ("thrush", "river", "stone")]
        for question, said in zip(questions, model().batch(questions)):
            self.assertEqual(said.content, model().invoke(question).content)

    def test_cancel(self):
        stream = model(max_tokens=3500, logit_bias=served.ENDLESS).stream(served.QUESTION)
        next(stream)
        stream.close()
        served.check_idle(self)

    def test_errors(self):
        for kind, options, question in (
            (openai.BadRequestError, {"temperature": 3}, served.QUESTION),
            (openai.BadRequestError, {}, served.TOO_LONG),
            (openai.AuthenticationError, {"api_key": "wrong"}, served.QUESTION),
            (openai.NotFoundError, {"model": "other"}, served.QUESTION),
        ):
            with self.assertRaises(kind) as raised:
                model(**options).invoke(question)
            served.show("error", f"{kind.__name__}: {raised.exception.body['message'][:100]}")


if __name__ == "__main__":
    unittest.main(verbosity=2)
