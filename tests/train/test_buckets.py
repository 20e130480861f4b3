"""Few lengths, whole windows, nothing lost but what waits for the next epoch."""

from __future__ import annotations

import pytest
from dflash_train.buckets import bucket_of, plan_epoch
from dflash_train.data import BatchSource, Document
from dflash_train.errors import UsageError
from dflash_train.materials import make_untaught
from dflash_train.settings import parse_overrides
from dflash_train.tiny import GIVEN_WORDS, SEPARATOR, make_documents
from hypothesis import given, settings
from hypothesis import strategies as st

BUCKETS = (8, 16, 32)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 32), min_size=1, max_size=60), st.integers(1, 6), st.randoms())
def test_windows_are_whole_and_each_document_is_used_at_most_once(lengths, rows, shuffle):
    order = list(range(len(lengths)))
    shuffle.shuffle(order)
    windows = plan_epoch(lengths, BUCKETS, rows, order)
    used = [document for window in windows for document in window.documents]
    assert len(used) == len(set(used)) == len(lengths) - len(lengths) % rows
    assert all(len(window.documents) == rows for window in windows)
    assert all(lengths[d] <= w.bucket for w in windows for d in w.documents)


def test_the_number_of_windows_does_not_depend_on_the_order():
    lengths = [3, 9, 30, 8, 16, 2, 31, 7, 12, 5, 6]
    forwards = plan_epoch(lengths, BUCKETS, 2, range(11))
    backwards = plan_epoch(lengths, BUCKETS, 2, range(10, -1, -1))
    assert len(forwards) == len(backwards) == 5


def test_a_document_longer_than_the_last_bucket_is_refused():
    with pytest.raises(UsageError, match="33 tokens: the last bucket holds 32"):
        bucket_of(33, BUCKETS)


def test_all_drafters_of_a_step_get_one_shape(small):
    source: BatchSource = make_untaught(small).source
    for step in range(source.steps_per_epoch):
        pair = [source.batch(2 * step + part).input_ids_BT.shape for part in (0, 1)]
        assert pair[0] == pair[1]


def test_a_batch_is_a_function_of_its_number(small):
    first, second = make_untaught(small).source, make_untaught(small).source
    second.batch(3)
    one, other = first.batch(41), second.batch(41)
    assert one.input_ids_BT.equal(other.input_ids_BT)
    assert one.anchors_BA.equal(other.anchors_BA)
    assert one.rows_R.equal(other.rows_R)


def test_another_epoch_has_another_order(small):
    source = make_untaught(small).source
    per_epoch = source.steps_per_epoch * small.batches_per_step
    first = [source.batch(i).input_ids_BT for i in range(per_epoch)]
    second = [source.batch(per_epoch + i).input_ids_BT for i in range(per_epoch)]
    assert not all(a.shape == b.shape and a.equal(b) for a, b in zip(first, second, strict=True))


def test_only_the_response_is_supervised(small):
    for document in make_documents(small):
        assert document.tokens[document.prompt_length - GIVEN_WORDS - 1] == SEPARATOR
        assert SEPARATOR not in document.tokens[document.prompt_length - GIVEN_WORDS :]
        assert sum(document.mask()) == len(document.tokens) - document.prompt_length


def test_documents_depend_on_the_seed_alone(small):
    assert make_documents(small) == make_documents(small)
    assert make_documents(small) != make_documents(parse_overrides(small, ["seed=1"]))


def test_where_a_mask_has_gaps_the_loss_falls_on_what_it_names(small):
    mask = tuple(10 <= place < 20 or place >= 30 for place in range(40))
    tokens = tuple(range(5, 45))
    documents = [Document(tokens, 10, mask)] * 8 + [Document(tokens, 10)] * 8
    batch = BatchSource(documents, parse_overrides(small, ["data.rows=16"]), [40] * 16).largest()
    blocks, steps = (
        batch.rows_R // small.drafter.block_size,
        batch.rows_R % small.drafter.block_size,
    )
    places = batch.anchors_BA.flatten()[blocks] + steps
    is_gapped = blocks < 8 * small.loss.num_anchors
    assert all(mask[place] for place in places[is_gapped].tolist())
    assert not all(mask[place] for place in places[~is_gapped].tolist())
