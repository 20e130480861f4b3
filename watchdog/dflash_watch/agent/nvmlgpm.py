"""GPM: how busy SMs, tensor cores and memory really were between two samples (Hopper and newer)."""

from __future__ import annotations

from typing import Any, Dict, Optional

import pynvml

METRICS = {2: "sm_ratio", 5: "tensor_ratio", 10: "dram_ratio"}
"""NVML's metric numbers: SM utilisation, any tensor, DRAM bandwidth, all in percent."""


class Gpm:
    """Two sample buffers of one device, used in turn."""

    def __init__(self) -> None:
        self._old: Any = None
        self._new: Any = None
        self._refused: Optional[pynvml.NVMLError] = None

    def begin(self, handle: Any) -> None:
        """Ask whether the device has it; remember the refusal, so that `read` can say it."""
        self._old = self._new = None
        try:
            supported = pynvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice
            self._refused = None if supported else pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        except pynvml.NVMLError as error:
            self._refused = error

    def read(self, handle: Any) -> Dict[str, float]:
        """Ratios since the last reading; empty on the first.

        Raises:
            pynvml.NVMLError: not supported here, or the driver refuses.
        """
        if self._refused is not None:
            raise self._refused
        spare = self._old if self._old is not None else pynvml.nvmlGpmSampleAlloc()
        pynvml.nvmlGpmSampleGet(handle, spare)
        self._old, self._new = self._new, spare
        return {} if self._old is None else self._between()

    def _between(self) -> Dict[str, float]:
        question = pynvml.c_nvmlGpmMetricsGet_t()
        question.version = pynvml.NVML_GPM_METRICS_GET_VERSION
        question.numMetrics = len(METRICS)
        question.sample1, question.sample2 = self._old, self._new
        for place, number in enumerate(METRICS):
            question.metrics[place].metricId = number
        pynvml.nvmlGpmMetricsGet(question)
        return {
            METRICS[metric.metricId]: round(metric.value / 100, 4)
            for metric in question.metrics[: len(METRICS)]
            if metric.nvmlReturn == 0 and 0.0 <= metric.value <= 100.5
        }
