"""The `llm` command, as docs/clients.md configures it."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import served

CONFIG = f"""
- model_id: ouzel
  model_name: {served.MODEL}
  api_base: {served.URL}/v1
  api_key_name: ouzel
  supports_tools: true
  supports_schema: true
- model_id: ouzel-stranger
  model_name: {served.MODEL}
  api_base: {served.URL}/v1
  api_key_name: stranger
"""
TOOLS = f'''
def weather(city: str) -> str:
    """The weather of a city."""
    return {served.WEATHER_RESULT!r}
'''


class Command(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        home = pathlib.Path(cls.folder.name)
        home.joinpath("extra-openai-models.yaml").write_text(CONFIG)
        home.joinpath("keys.json").write_text(json.dumps({"ouzel": served.KEY, "stranger": "wrong"}))
        home.joinpath("tools.py").write_text(TOOLS)
        cls.env = {**os.environ, "LLM_USER_PATH": cls.folder.name}

    def run_llm(self, *args):
        command = [sys.executable, "-m", "llm", *args]
        return subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=60)

    def llm(self, *args, code=0):
        done = self.run_llm(*args)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stderr if code else done.stdout

    def test_chat_and_stream_say_the_same(self):
        whole = self.llm("-m", "ouzel", "--no-stream", served.QUESTION)
        self.assertTrue(whole.strip())
        self.assertEqual(self.llm("-m", "ouzel", served.QUESTION), whole)
        served.show("chat", [served.QUESTION, whole.strip()])

    def test_the_conversation_goes_on(self):
        self.llm("-m", "ouzel", served.QUESTION)
        self.assertTrue(self.llm("-c", "What is a thrush?").strip())

    def test_tools(self):
        # `llm` cannot demand a call and sets no end to them but a limit: a small model may call to the last.
        tools = os.path.join(self.folder.name, "tools.py")
        done = self.run_llm("-m", "ouzel", "--functions", tools, "--td", "--chain-limit", "2", served.WEATHER_QUESTION)
        limit = "Chain limit of 2 exceeded"
        self.assertTrue(done.returncode == 0 or limit in done.stderr, done.stderr)
        served.show("tools", (done.stdout + done.stderr).strip())

    def test_schema(self):
        said = self.llm("-m", "ouzel", "--schema", json.dumps(served.BIRD), served.QUESTION)
        served.check_bird(self, json.loads(said))
        served.show("schema", said.strip())

    def test_errors(self):
        served.show("error", self.llm("-m", "ouzel-stranger", served.QUESTION, code=1).strip())
        self.assertIn("tokens", self.llm("-m", "ouzel", served.TOO_LONG, code=1))


if __name__ == "__main__":
    unittest.main(verbosity=2)
