"""Chat templates in the manner of published families, and the conversations that they are rendered with.

The templates are families/*.jinja: written for these tests, with what the families' own templates use, and words of
their own.
"""
import pathlib

WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather \"now\" at a place, <°C>",
    "parameters": {"type": "object", "properties": {
        "place": {"type": "string", "description": " Where, e.g. Größe "},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
        "days": {"type": ["integer", "string"], "description": "how many"},
        "at": {"type": "array", "items": {"type": "object", "properties": {"hour": {"type": "number"}}, "required": ["hour"]}},
        "more": {"type": "object", "additionalProperties": {"type": "string"}},
        "either": {"oneOf": [{"type": "string", "description": "a name"}, {"type": "boolean", "default": True}]}},
        "required": ["place"]}}}
SEARCH = {"type": "function", "function": {"name": "search", "description": "Looks something up.", "parameters": {
    "type": "object", "properties": {}}, "return": {"type": "array"}}}


def call(name, arguments, number=1):
    return {"id": f"call{number:05}", "type": "function", "function": {"name": name, "arguments": arguments}}


SYSTEM = {"role": "system", "content": "Be brief. <|im_end|>"}
QUESTION = {"role": "user", "content": " What is the weather in Zürich?\n"}
ANSWER = {"role": "assistant", "content": "It is sunny, 21 °C."}
CALL = {"role": "assistant", "content": None, "tool_calls": [call("get_weather", {"place": "Zürich", "days": 2})]}
RESULT = {"role": "tool", "tool_call_id": "call00001", "name": "get_weather", "content": "{\"t\": 21, \"sky\": \"clear\"}"}
TWO_CALLS = {"role": "assistant", "content": "I will look.", "tool_plan": "Look.", "tool_calls": [
    call("get_weather", {"place": "Rome", "at": [{"hour": 12}]}), call("search", {"q": "<b>\"Rome\"</b>"}, 2)]}
CONVERSATIONS = [
    [QUESTION],
    [SYSTEM, QUESTION],
    [SYSTEM, QUESTION, ANSWER, {"role": "user", "content": "And <|im_start|>tomorrow? /no_think"}],
    [QUESTION, ANSWER],
    [QUESTION, CALL, RESULT],
    [SYSTEM, QUESTION, CALL, RESULT, ANSWER, {"role": "user", "content": "Thanks"}],
    [QUESTION, TWO_CALLS, RESULT, {"role": "tool", "tool_call_id": "call00002", "content": "nothing"}],
    [{"role": "system", "content": "/think"}, QUESTION,
     {"role": "assistant", "content": "<think>\nHm, \n</think>\n\nSunny.", "reasoning_content": None},
     {"role": "user", "content": "Why?"}, {"role": "assistant", "content": "Because.", "reasoning_content": "\nLook up.\n", "thinking": "Look up."}],
    [{"role": "user", "content": [{"type": "text", "text": "What is "}, {"type": "image"}, {"type": "text", "text": " this?"}]}],
]
DOCUMENTS = [{"title": "Tall penguins", "text": "Emperors are the tallest.", "doc_id": 1},
             {"title": "Ants", "snippet": "é", "text": "Small.", "doc_id": "b"}]
OPTIONS = [
    {"add_generation_prompt": True},
    {"add_generation_prompt": False, "tools": [WEATHER, SEARCH], "enable_thinking": False, "date_string": "1 May 2025"},
    {"add_generation_prompt": True, "tools": [WEATHER], "documents": DOCUMENTS, "thinking": True,
     "reasoning_effort": "high", "builtin_tools": ["search", "code_interpreter"], "controls": {"length": "long", "citations": True},
     "add_vision_id": True, "skip_thinking": True, "knobs": {"mode": "json"}, "tools_in_user_message": False, "safety_mode": "STRICT"},
]


def all_cases():
    """(template, variables)"""
    for path in sorted((pathlib.Path(__file__).parent / "families").glob("*.jinja")):
        template = path.read_text()
        for messages in CONVERSATIONS:
            for options in OPTIONS:
                base = {"bos_token": "<s>", "eos_token": "</s>"}
                if "tools" not in options:
                    base |= {"tools": None, "documents": None}  # as they are where nobody gives any
                yield template, {**base, "messages": messages, **options}
