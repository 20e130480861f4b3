"""The loss falls on what the assistant wrote, as the template shows it, and on nothing else."""

from __future__ import annotations

import json

import pytest
from dflash_train.corpus.chat import BadLineError, Form, parse_line
from dflash_train.corpus.encode import EncodeOptions, Encoder
from dflash_train.corpus.template import Way
from dflash_train.errors import UsageError
from train.made_tokenizers import BLOCKS, PLAIN, THINKING, UNSOUND, make_tokenizer

TALK = [
    {"role": "system", "content": "you are kind."},
    {"role": "user", "content": "what is two and two?"},
    {"role": "assistant", "content": "it is four."},
    {"role": "user", "content": "<|im_start|>assistant\nthe answer?"},
    {"role": "assistant", "content": "four, naïve café 数"},
]
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {}}}


@pytest.fixture
def encode(tmp_path):
    """Template and record to (supervised texts, whole texts) of the documents."""

    def run(template, record, **options):
        path = str(make_tokenizer(tmp_path / "tokenizer", template))
        one = Encoder(EncodeOptions(tokenizer=path, **options))
        found = one.chat().encode(parse_line(json.dumps(record).encode(), Form.JSON_LINES))
        return [
            (_spans(one.tokenizer, document), one.tokenizer.decode(document.input_ids))
            for document in found
        ]

    return run


def _spans(tokenizer, document):
    texts, ids = [], []
    for token, counts in zip(
        [*document.input_ids, -1], [*document.is_supervised, False], strict=True
    ):
        if counts:
            ids.append(token)
        elif ids:
            texts.append(tokenizer.decode(ids))
            ids = []
    return texts


@pytest.mark.parametrize("template", [PLAIN, BLOCKS])
def test_both_ways_give_the_answers_with_their_end_even_where_a_question_imitates_markers(
    encode, template
):
    ((spans, _),) = encode(template, {"messages": TALK})
    assert spans == ["it is four.<|im_end|>", "four, naïve café 数<|im_end|>"]


@pytest.mark.parametrize(
    ("template", "way"),
    [
        (PLAIN, Way.PREFIX_DIFFERENCES),
        (BLOCKS, Way.GENERATION_BLOCKS),
        (THINKING, Way.PREFIX_DIFFERENCES),
    ],
)
def test_the_way_that_is_used_is_known(tmp_path, template, way):
    path = str(make_tokenizer(tmp_path, template))
    assert Encoder(EncodeOptions(tokenizer=path)).chat().way is way


THOUGHT = [
    {"role": "user", "content": "two?"},
    {"role": "assistant", "content": "two.", "reasoning_content": "let me see"},
    {"role": "user", "content": "four?"},
    {"role": "assistant", "content": "four.", "reasoning_content": "counting"},
]


def test_a_turn_whose_thinking_is_left_out_later_becomes_a_document_of_its_own(encode):
    first, second = encode(THINKING, {"messages": THOUGHT})
    assert first[0] == ["<think>\nlet me see\n</think>\n\ntwo.<|im_end|>"]
    assert second[0] == ["<think>\ncounting\n</think>\n\nfour.<|im_end|>"]
    assert "let me see" not in second[1]
    assert "two." in second[1]


def test_without_thinking_the_empty_thought_belongs_to_the_prompt(encode):
    talk = [THOUGHT[0], {"role": "assistant", "content": "two."}]
    for asked in ({"enable_thinking": False}, {"chat_template_kwargs": {"enable_thinking": False}}):
        ((spans, whole),) = encode(THINKING, {"messages": talk, **asked})
        assert spans == ["two.<|im_end|>"]
        assert "<think>\n\n</think>\n\ntwo." in whole
    ((spans, _),) = encode(THINKING, {"messages": talk}, thinking=False)
    assert spans == ["two.<|im_end|>"]


def test_calls_of_tools_are_answers_and_what_tools_say_is_none(encode):
    call = {"function": {"name": "weather", "arguments": {"town": "a"}}}
    talk = [
        {"role": "user", "content": "weather?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "sunny"},
        {"role": "assistant", "content": "it is sunny."},
    ]
    ((spans, whole),) = encode(THINKING, {"messages": talk, "tools": [TOOL]})
    assert len(spans) == 2
    assert '<tool_call>{"name": "weather"' in spans[0]
    assert spans[1].endswith("it is sunny.<|im_end|>")
    assert whole.startswith('<|im_start|>system\nfunctions: {"type": "function"')


def test_a_template_that_asks_otherwise_than_it_shows_is_refused_with_the_reason(tmp_path):
    path = str(make_tokenizer(tmp_path, UNSOUND))
    with pytest.raises(UsageError, match=r"neither|cannot be told.*'<think>.*--chat-template FILE"):
        Encoder(EncodeOptions(tokenizer=path)).chat()


def test_chats_without_a_template_and_thinking_nobody_hears_are_refused(tmp_path):
    bare = str(make_tokenizer(tmp_path / "bare"))
    with pytest.raises(UsageError, match=r"without a chat template.*--chat-template"):
        Encoder(EncodeOptions(tokenizer=bare)).chat()
    with pytest.raises(UsageError, match="--thinking: the chat template renders the same"):
        Encoder(EncodeOptions(tokenizer=bare, chat_template=PLAIN, thinking=True)).chat()


def test_what_the_template_itself_refuses_is_a_bad_line(encode):
    strict = "{% if messages[0].role != 'user' %}{{ raise_exception('user first') }}{% endif %}"
    with pytest.raises(BadLineError, match="chat template: TemplateError: user first"):
        encode(strict + PLAIN, {"messages": TALK})


BAD = [
    (b'{"messages": [}', "not JSON"),
    (b"\xff\xfe", "not UTF-8 at byte 0"),
    (b"[1]", "a list, expected an object"),
    (b'{"prompt": "a"}', "keys prompt; expected messages, conversations or text"),
    (b'{"messages": []}', "messages: an empty list"),
    (b'{"messages": "hi"}', "messages: text that is not JSON"),
    (b'{"messages": [3]}', "messages[0]: a number, expected an object"),
    (b'{"messages": [{"content": "a"}]}', "messages[0]: no role"),
    (b'{"messages": [{"role": "user"}]}', "messages[0].content: null, expected text"),
    (b'{"conversations": [{"from": "human"}]}', "a message without from or value"),
    (b'{"messages": [{"role": "user", "content": "a"}], "tools": 3}', "tools: a number"),
]


@pytest.mark.parametrize(("line", "reason"), BAD)
def test_a_bad_line_says_what_was_seen_and_what_is_expected(line, reason):
    with pytest.raises(BadLineError) as caught:
        parse_line(line, Form.JSON_LINES)
    assert reason in str(caught.value)


def test_the_older_form_and_lists_kept_as_text_are_understood():
    old = {"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]}
    read = parse_line(json.dumps(old).encode(), Form.JSON_LINES)
    assert [m["role"] for m in read.messages] == ["user", "assistant"]
    packed = {"messages": json.dumps(TALK), "tools": json.dumps([TOOL])}
    read = parse_line(json.dumps(packed).encode(), Form.JSON_LINES)
    assert (len(read.messages), read.tools) == (5, (TOOL,))
