"""How vLLM, SGLang and transformers will read a published drafter, item by item.

SGLang skips a tensor it does not know without a word, and fills a field that is missing with its
own default: what would happen silently there is a row here. Reads headers of tensors only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from safetensors import safe_open

from dflash_train.errors import CheckpointError
from dflash_train.layouts.from_run import ServedTarget, read_target
from dflash_train.layouts.geometry import (
    CONFIG_NAME,
    DraftGeometry,
    block_sizes,
    geometry_of,
    layers_section,
    layout_of,
    load_config,
)
from dflash_train.layouts.weights import FROM_VERIFIER, read_published, tensor_files

State = Literal["ok", "note", "bad"]
Config = Mapping[str, Any]
Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table."""

    item: str
    observed: str
    state: State
    reading: str
    """What a serving engine makes of it, and what to do where that is wrong."""


def table_of(folder: Path, target: ServedTarget | None) -> list[Row]:
    """All rows of a folder.

    Args:
        folder: of the drafter.
        target: what it will serve with; None takes the target that the folder names, if that is
            here, and else leaves those comparisons out.

    Raises:
        CheckpointError: no readable configuration or tensors at all.
    """
    config = load_config(folder)
    shapes = _shapes(folder)
    try:
        geometry = geometry_of(config, CONFIG_NAME)
    except CheckpointError as error:
        return [Row(item="config.json", observed="refused", state="bad", reading=str(error))]
    rows = [*_fields(config, geometry), *_rope(config)]
    known = target or _named_target(config)
    rows += [*_layer_ids(config, geometry, shapes), *_against_target(geometry, known)]
    if layout_of(config) == "speculators":
        rows += _speculators(config, geometry)
    rows += _tensors(geometry, shapes, config)
    if not any(row.state == "bad" for row in rows):
        try:
            read_published(folder)
        except CheckpointError as error:
            rows.append(Row(item="tensors", observed="refused", state="bad", reading=str(error)))
    return rows


def _named_target(config: Config) -> ServedTarget | None:
    name = ((config.get("speculators_config") or {}).get("verifier") or {}).get("name_or_path")
    return read_target(name) if name and Path(name).is_dir() else None


def _shapes(folder: Path) -> Shapes:
    found: dict[str, tuple[int, ...]] = {}
    files = tensor_files(folder)
    for file in sorted(set(files.values())):
        with safe_open(file, framework="pt") as opened:
            for name in opened.keys():  # noqa: SIM118  (a method of safetensors, no mapping)
                found[name] = tuple(opened.get_slice(name).get_shape())
    return found


def _row(item: str, observed: object, *, is_ok: bool, reading: str, else_: str) -> Row:
    return Row(
        item=item,
        observed=str(observed),
        state="ok" if is_ok else "bad",
        reading=reading if is_ok else else_,
    )


def _fields(config: Config, geometry: DraftGeometry) -> Iterator[Row]:
    layout, layers = layout_of(config), layers_section(config)
    yield Row(item="layout", observed=str(layout), state="ok", reading="DFlash, Qwen3-style layers")
    model_type = layers.get("model_type")
    yield _row(
        "model_type",
        model_type,
        is_ok=model_type == "qwen3",
        reading="vLLM and SGLang build Qwen3 layers from it",
        else_="expected qwen3: another type brings another configuration class and other defaults",
    )
    sizes = block_sizes(config)
    yield _row(
        "block_size",
        " and ".join(str(size) for size in sizes),
        is_ok=len(set(sizes)) == 1,
        reading=f"{sizes[0] - 1} tokens drafted in a pass",
        else_="top level and dflash_config differ: which one counts depends on the engine",
    )
    if layout == "zlab" and len(sizes) == 1:
        yield Row(
            item="block_size",
            observed="in one place",
            state="note",
            reading="older readers look at the top level, newer into dflash_config: write both",
        )
    yield _row(
        "mask_token_id",
        geometry.mask_token_id,
        is_ok=0 <= geometry.mask_token_id < geometry.vocab_size,
        reading="row of the target's embedding at the drafted positions",
        else_=f"outside of the vocabulary of {geometry.vocab_size}",
    )
    activation = layers.get("hidden_act", "silu")
    yield _row(
        "hidden_act",
        activation,
        is_ok=activation == "silu",
        reading="as trained",
        else_="SGLang asserts silu",
    )
    yield from _attention(layers, geometry)


def _attention(layers: Config, geometry: DraftGeometry) -> Iterator[Row]:
    kinds = geometry.layer_types
    num_full = kinds.count("full_attention")
    yield Row(
        item="layer_types",
        observed=f"{len(kinds) - num_full} sliding, {num_full} full",
        state="note" if 0 < num_full < len(kinds) else "ok",
        reading="sliding: causal in the block; full: both directions"
        + ("; mixed layers need vLLM's V2 runner" if 0 < num_full < len(kinds) else ""),
    )
    if geometry.sliding_window is not None:
        yield _row(
            "sliding_window",
            geometry.sliding_window,
            is_ok=bool(layers.get("use_sliding_window", True)),
            reading=f"window_left {geometry.sliding_window - 1}: own position included",
            else_="use_sliding_window is false: the window is dropped, layers see everything",
        )


def _rope(config: Config) -> Iterator[Row]:
    layers = layers_section(config)
    new = (layers.get("rope_parameters") or {}).get("rope_theta")
    old = layers.get("rope_theta")
    yield Row(
        item="rope_parameters",
        observed=str(new),
        state="note" if new is None else "ok",
        reading="transformers 5 and vLLM take rope_theta instead"
        if new is None
        else "transformers 5 and vLLM turn whole heads with this base",
    )
    if old is None and layout_of(config) == "speculators":
        reading = "only vLLM reads this layout, and it reads rope_parameters"
        yield Row(item="rope_theta", observed="None", state="note", reading=reading)
    else:
        yield _row(
            "rope_theta",
            old,
            is_ok=old is not None and (new is None or float(new) == float(old)),
            reading="SGLang and older stacks turn whole heads with this base",
            else_="missing: SGLang and older stacks take their own default"
            if old is None
            else f"differs from rope_parameters ({new}): engines disagree",
        )
    stray = [key for key in ("partial_rotary_factor", "mrope_section") if _mentions(layers, key)]
    yield _row(
        "partial or multi-axis RoPE",
        ", ".join(stray) or "none",
        is_ok=not stray,
        reading="whole heads are turned, as trained",
        else_="vLLM follows these fields, training did not: acceptance falls; remove them",
    )


def _mentions(layers: Config, key: str) -> bool:
    return key in layers or key in (layers.get("rope_parameters") or {})


def _layer_ids(config: Config, geometry: DraftGeometry, shapes: Shapes) -> Iterator[Row]:
    ids = geometry.layer_ids
    states = ", ".join(f"hidden_states[{i + 1}]" for i in ids)
    where = "target_layer_ids"
    written: object = list(ids)
    if layout_of(config) == "speculators":
        where, written = "aux_hidden_state_layer_ids", list(config["aux_hidden_state_layer_ids"])
    last = geometry.num_target_layers
    inside = all(i >= 0 and (last is None or i < last) for i in ids)
    yield _row(
        where,
        written,
        is_ok=inside and len(set(ids)) == len(ids) and bool(ids),
        reading=f"{states}; vLLM's auxiliary layers {[i + 1 for i in ids]}",
        else_=f"expected different layers, 0 to {last - 1 if last else 'the last'}, as outputs",
    )
    if last is not None and last - 1 in ids:
        yield Row(
            item=where,
            observed=str(last - 1),
            state="note",
            reading="the last layer: transformers' list has it after the final norm, the engines"
            " before; speculators' converter drops it",
        )
    width = shapes.get("fc.weight", (0, 0))[-1]
    yield _row(
        "fc input",
        width,
        is_ok=width == len(ids) * geometry.hidden_size,
        reading=f"{len(ids)} features of {geometry.hidden_size}",
        else_=f"expected {len(ids)} x {geometry.hidden_size}: both engines refuse",
    )


def _against_target(geometry: DraftGeometry, target: ServedTarget | None) -> Iterator[Row]:
    reach = geometry.max_position_embeddings
    longest = target.max_position_embeddings if target else None
    if target is None or longest is None:
        yield Row(
            item="max_position_embeddings",
            observed=str(reach),
            state="note",
            reading="must cover the serving context; --target PATH compares with the target's",
        )
        return
    yield _row(
        "max_position_embeddings",
        reach,
        is_ok=reach >= longest,
        reading=f"covers the target's {longest}",
        else_=f"the target serves up to {longest}: drafts go wrong beyond",
    )
    yield _row(
        "mask_token_id",
        geometry.mask_token_id,
        is_ok=geometry.mask_token_id not in target.special_ids,
        reading="none of the target's pad, start and end tokens",
        else_="pads, starts or ends text for the target: its embedding means something else",
    )
    for item, ours, theirs in (
        ("hidden_size", geometry.hidden_size, target.hidden_size),
        ("vocab_size", geometry.vocab_size, target.vocab_size),
        ("num_target_layers", geometry.num_target_layers, target.num_layers),
    ):
        yield _row(
            item,
            ours,
            is_ok=ours in (None, theirs),
            reading=f"the target has {theirs}",
            else_=f"the target has {theirs}: another target, or not its drafter",
        )


def _speculators(config: Config, geometry: DraftGeometry) -> Iterator[Row]:
    inner = config.get("speculators_config") or {}
    method = (inner.get("proposal_methods") or [{}])[0]
    drafted = method.get("speculative_tokens")
    yield _row(
        "speculative_tokens",
        drafted,
        is_ok=drafted == geometry.block_size - 1,
        reading="block_size - 1: the anchor is not drafted",
        else_=f"expected block_size - 1 = {geometry.block_size - 1}",
    )
    name = (inner.get("verifier") or {}).get("name_or_path")
    yield _row(
        "verifier",
        name,
        is_ok=bool(name),
        reading="embedding and lm_head are taken from there",
        else_="no name: embedding and lm_head stay empty; export with --verifier",
    )
    for key in ("sliding_window_non_causal", "sample_from_anchor"):
        yield _row(
            key,
            config.get(key, False),
            is_ok=not config.get(key, False),
            reading="as vLLM serves it",
            else_="vLLM does not serve this",
        )
    rows = config.get("draft_vocab_size")
    yield Row(
        item="draft_vocab_size",
        observed=str(rows),
        state="ok" if rows == geometry.vocab_size else "note",
        reading="the target's whole vocabulary"
        if rows == geometry.vocab_size
        else "own lm_head; d2t is added to its row numbers, t2d is not read by vLLM",
    )


def _tensors(geometry: DraftGeometry, shapes: Shapes, config: Config) -> Iterator[Row]:
    expected = geometry.tensor_shapes()
    for name, shape in expected.items():
        seen = shapes.get(name)
        yield _row(
            name,
            "missing" if seen is None else list(seen),
            is_ok=seen == shape,
            reading="loads",
            else_="stays as the engine initialised it"
            if seen is None
            else f"expected {list(shape)}: does not load",
        )
    for name in sorted(shapes.keys() - expected.keys()):
        yield _beside(name, shapes[name], is_zlab=layout_of(config) == "zlab")


def _beside(name: str, shape: tuple[int, ...], *, is_zlab: bool) -> Row:
    """A tensor that is none of the drafter's own."""
    if not is_zlab and name in (*FROM_VERIFIER, "lm_head.weight", "t2d", "d2t"):
        reading = "a copy of the target's own" if name in FROM_VERIFIER else "reduced vocabulary"
        return Row(item=name, observed=str(list(shape)), state="ok", reading=reading)
    reading = "SGLang skips it silently"
    if "mask_hidden" in name:
        reading = "vLLM refuses this name"
    return Row(item=name, observed=str(list(shape)), state="bad", reading=reading)
