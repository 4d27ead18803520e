"""The official batches are read; what a pickle could run is not run."""

import os
import pickle
import warnings

import numpy as np
import pytest

from resnets.data.unpickle import read_batch
from resnets.errors import UserError


def same(found, rows):
    pixels, labels = found
    return np.array_equal(pixels, rows["image"].reshape(-1, 3072)) and labels == rows["label"].tolist()


def test_reads_a_batch_as_python_2_wrote_it(tiny, tiny100):
    data = tiny.files("python")["test_batch"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # numpy.core
        oracle = pickle.loads(data, encoding="latin1")  # our own bytes: safe to unpickle
    rows = tiny.parts("python")["test_batch"]
    assert np.array_equal(oracle["data"], rows["image"].reshape(-1, 3072))
    assert same(read_batch(data, "x"), rows)
    assert same(read_batch(tiny100.files("python")["train"], "x"), tiny100.parts("python")["train"])


@pytest.mark.parametrize("order", ["C", "F"])
def test_reads_a_batch_as_python_3_writes_it_in_protocol_2(tiny, order):
    rows = tiny.rows[:7]
    batch = {"data": np.array(rows["image"].reshape(-1, 3072), order=order), "labels": rows["label"].tolist()}
    assert same(read_batch(pickle.dumps(batch, protocol=2), "x"), rows)


class Runs:
    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


HOSTILE = {
    "os.system": lambda mark: pickle.dumps({"data": Runs(os.system, f"touch {mark}")}),
    "eval": lambda mark: pickle.dumps(Runs(eval, f"open({str(mark)!r}, 'w')"), protocol=2),
    "exec": lambda mark: pickle.dumps(Runs(exec, f"open({str(mark)!r}, 'w')"), protocol=0),
    "open": lambda mark: pickle.dumps(Runs(open, str(mark), "w"), protocol=4),
    "dotted": lambda mark: b"\x80\x04\x8c\x05numpy\x8c\x0fndarray.tofile\x93.",
    "numpy load": lambda mark: b"cnumpy\nload\n(S'x'\ntR.",
    "getattr": lambda mark: b"cbuiltins\ngetattr\n(cnumpy\nndarray\nS'dump'\ntR.",
    "calls ndarray": lambda mark: b"cnumpy\nndarray\n((I1000000000000\ntt" + b"R.",
    "state on a class": lambda mark: b"cnumpy.core.multiarray\n_reconstruct\n(N}S'__init__'\nNstb.",
    "object dtype": lambda mark: pickle.dumps({"data": np.array([None], dtype=object), "labels": [0]}, protocol=2),
    "codec": lambda mark: b"c_codecs\nencode\n(Vabc\nVrot13\ntR.",
    "extension": lambda mark: b"\x80\x02\x82\x01.",
    "persistent": lambda mark: b"Pabc\n.",
    "not a dict": lambda mark: pickle.dumps([1, 2, 3]),
    "no labels": lambda mark: pickle.dumps({"data": np.zeros((1, 3072), np.uint8)}, protocol=2),
    "no array": lambda mark: pickle.dumps({"data": b"abc", "labels": [1]}),
    "wrong shape": lambda mark: pickle.dumps({"data": np.zeros(3, np.uint8), "labels": [1]}, protocol=2)[:-20] + b".",
    "cut off": lambda mark: pickle.dumps({"data": np.zeros(3000, np.uint8)}, protocol=2)[:900],
    "empty": lambda mark: b"",
    "text": lambda mark: b"<html>404</html>",
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_refuses_everything_else_and_runs_nothing(kind, tmp_path):
    mark = tmp_path / "ran"
    with pytest.raises(UserError, match=r"the/file is not a CIFAR batch: .*official file\.$"):
        read_batch(HOSTILE[kind](mark), "the/file")
    assert not mark.exists()


def test_the_stand_ins_keep_no_trace_of_a_forged_pickle(tiny):
    for forge in HOSTILE.values():
        with pytest.raises(UserError):
            read_batch(forge("/nonexistent/ran"), "x")
    assert same(read_batch(tiny.files("python")["test_batch"], "x"), tiny.parts("python")["test_batch"])
