"""CIFAR's pickles: all encodings of the published records are read, and everything else is refused."""

from __future__ import annotations

import os
import pickle

import numpy as np
import pytest
from published import cifar100_record, python2_pickle, write_cifar100
from refusal import HTML, as_cases, check_refused

from fedtaco.data import load_dataset
from fedtaco.data.sources.cifar import read_batch
from fedtaco.data.sources.cifar_pickle import read_record

BATCH = "a CIFAR batch with 'data' and 'fine_labels'"
LABELS = b"U\x0bfine_labels]K\x01as"
"""Instructions that add one label to a record."""


def encode(protocol, record):
    return python2_pickle(record) if protocol == "Python 2" else pickle.dumps(record, protocol)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("protocol", ["Python 2", 2, 3, 4, 5])
def test_every_encoding_gives_what_pickle_gives(tmp_path, protocol, order):
    record = cifar100_record(300)
    if order == "F" and protocol != "Python 2":
        record[b"data"] = np.asfortranarray(record[b"data"])
    content = encode(protocol, record)
    expected = pickle.loads(content, encoding="bytes")
    (tmp_path / "train").write_bytes(content)
    batch = read_batch(tmp_path / "train", "fine_labels", 300)
    assert batch.x.dtype == batch.y.dtype == np.uint8
    assert np.array_equal(batch.x.reshape(300, 3072), expected[b"data"])
    assert batch.y.tolist() == expected[b"fine_labels"]
    assert read_record(content, 10_000)["filenames"] == [name.decode() for name in expected[b"filenames"]]


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_keys_may_be_text(tmp_path, protocol):
    record = {key.decode(): value for key, value in cifar100_record(10).items()} | {"note": b"", "none": None}
    (tmp_path / "train").write_bytes(pickle.dumps(record, protocol))
    assert np.array_equal(read_batch(tmp_path / "train", "fine_labels", 10).x.reshape(10, 3072), record["data"])


def test_python2_files_load_as_a_dataset(tmp_path, set_counts):
    set_counts("cifar100", 10, 5)
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    (folder / "train").write_bytes(python2_pickle(cifar100_record(10)))
    (folder / "test").write_bytes(python2_pickle(cifar100_record(5, seed=1)))
    data = load_dataset("cifar100", tmp_path)
    assert np.array_equal(data.test.x.numpy().reshape(5, 3072), cifar100_record(5, seed=1)[b"data"])


class Call:
    """Pickled as a call of a function and, if given, the state of what it returns."""

    def __init__(self, function, *arguments, state=None):
        self.reduced = function, arguments, state

    def __reduce__(self):
        return self.reduced


def array_of_pointers():
    """Return an array of objects whose flags deny that its bytes are pointers; NumPy would follow them and crash."""
    dtype = Call(np.dtype, "O8", False, True, state=(3, "|", None, None, None, -1, -1, 0))
    reconstruct = np.zeros(1).__reduce__()[0]
    return Call(reconstruct, np.ndarray, (0,), b"b", state=(1, (10, 3072), dtype, False, b"crash!!!" * 30_720))


def changed(**values):
    """Return a record of ten images in which some values are replaced or, if ``None``, missing."""
    record = cifar100_record(10) | {key.encode(): value for key, value in values.items()}
    return pickle.dumps({key: value for key, value in record.items() if value is not None}, 4)


def instructions(content):
    """Return a record of one label and of what these instructions of protocol 2 leave on the stack."""
    return b"\x80\x02}" + LABELS + b"U\x04data" + content + b"s."


def array(state):
    """Return a record with an array; ``state`` maps the instructions of its dtype to those that set its state."""
    empty = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    return instructions(empty + state(b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R"))


BYTES = b"(K\x03U\x01|NNN" + b"J\xff\xff\xff\xff" * 2 + b"K\x00tb"
"""Instructions that set the state of the dtype of unsigned bytes."""


def dtype_with(state):
    return array(lambda dtype: b"(K\x01K\x01K\x01\x86" + dtype + state + b"\x89U\x01xtb")


MATRIX = "a matrix of unsigned bytes"
HUGE = b"\x8a\xff" + b"\xff" * 254 + b"\x7f"
"""A number of 255 bytes."""
DAMAGES = {
    "empty": (b"", BATCH),
    "HTML page": (HTML, BATCH),
    "another instruction first": (b"}.", "it is not a pickle of protocol 2 to 5"),
    "protocol 0": (pickle.dumps({"data": 1}, 0), "not a pickle of protocol 2 to 5"),
    "protocol 1": (pickle.dumps({"data": 1}, 1), "not a pickle of protocol 2 to 5"),
    "unknown protocol": (b"\x80\x09}.", "not a pickle of protocol 2 to 5"),
    "cut": (changed()[:5000], "expected 30720 bytes in a bytes4, but only 4841 remain"),
    "no end": (changed()[:-1], "pickle exhausted before seeing STOP"),
    "nothing but an end": (b"\x80\x02.", BATCH),
    "not a dictionary": (pickle.dumps([1, 2], 2), "it contains a list instead of a dict"),
    "call of os.system": (
        changed(data=Call(os.system, "exit 1")),
        r"a call of posix\.system, which is not a matrix of",
    ),
    "call of eval": (changed(data=Call(eval, "1")), r"a call of builtins\.eval"),
    "call of getattr": (changed(data=Call(getattr, "a", "b")), r"a call of builtins\.getattr"),
    "call of numpy.load": (changed(data=Call(np.load, "x")), r"numpy\.load"),
    "call of a string": (instructions(b"U\x01xU\x01x\x85R"), "a call of x, which is not a matrix"),
    "terminal escapes in a name": (instructions(b"c\x1b[2J\nevil\n)R"), r"a call of \[2J\.evil"),
    "a name without end": (instructions(b"c" + b"x" * 100_000), BATCH),
    "a class": (changed(data=os.PathLike), "is not an array"),
    "a set": (changed(data={1}), "the instruction EMPTY_SET, which is not needed for data"),
    "a float": (changed(data=1.5), "the instruction BINFLOAT"),
    "a persistent id": (instructions(b"U\x01xQ"), "the instruction BINPERSID"),
    "an instance": (instructions(b"(ios\nsystem\n"), "the instruction INST"),
    "an extension code": (instructions(b"\x82\x01"), "the instruction EXT1"),
    "a new object": (instructions(b"cos\nsystem\n)\x81"), "the instruction NEWOBJ"),
    "codec other than latin1": (instructions(b"c_codecs\nencode\nX\x01\x00\x00\x00aU\x05rot13\x86R"), "_codecs.encode"),
    "names that expand": (
        instructions(b"T\x00\x10\x00\x00" + b"n" * 4096 + b"q\x01h\x01\x93" + b"h\x01h\x01\x93" * 100),
        "not a short string",
    ),
    "more instructions than images need": (instructions(b"]" * 5000), "more than 1,200 instructions"),
    "nested lists": (instructions(b"]" * 500 + b"a" * 499), "is not an array"),
    "nested tuples that double": (instructions(b"K\x01" + b"q\x01h\x01\x86" * 100), "is not an array"),
    "a list that contains itself": (instructions(b"]q\x01h\x01a"), "is not an array"),
    "a tuple as a key": (instructions(b"})K\x01s"), "key or a name that is not a short string"),
    "a long key": (instructions(b"}T\x00\x10\x00\x00" + b"k" * 4096 + b"K\x01s"), "not a short string"),
    "a key without a value": (instructions(b"}(U\x01xu"), BATCH),
    "an item of a number": (instructions(b"K\x01K\x02a"), "it contains a int instead of a list"),
    "a missing memo": (instructions(b"h\x63"), "it lacks 99"),
    "a missing mark": (instructions(b"t"), BATCH),
    "an empty stack": (b"\x80\x02\x87.", "it uses more values than it contains"),
    "a string longer than the file": (instructions(b"\x8e" + b"\xff" * 8), "byte count > sys.maxsize"),
    "text that is not UTF-8": (instructions(b"X\x01\x00\x00\x00\xff"), BATCH),
    "a state of a list": (instructions(b"]Nb"), "it contains a list instead of a Call"),
    "an array of 16-bit numbers": (changed(data=np.zeros((10, 3072), np.int16)), MATRIX),
    "an array of objects": (changed(data=np.array([[None]])), MATRIX),
    "an array of records": (changed(data=np.zeros(10, "u1,u1")), MATRIX),
    "pointers in an array": (changed(data=array_of_pointers()), MATRIX),
    "a dtype state with fields": (
        dtype_with(b"(K\x03U\x01|N(U\x01ate}J\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"),
        BATCH,
    ),
    "a dtype state with other sizes": (
        dtype_with(b"(K\x03U\x01|NNNJ\xff\xff\xff\x7fJ\xff\xff\xff\x7fK\x00tb"),
        MATRIX,
    ),
    "a dtype state with object flags": (
        dtype_with(b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x3ftb"),
        MATRIX,
    ),
    "a dtype state of another length": (dtype_with(b"(K\x03tb"), MATRIX),
    "an array without state": (array(lambda _: b""), MATRIX),
    "an array of another shape": (
        array(lambda dtype: b"(K\x01K\x02M\x00\x0c\x86" + dtype + BYTES + b"\x89U\x01xtb"),
        "the shape of an array does not fit its 1 bytes",
    ),
    "an array of a huge shape": (
        array(lambda dtype: b"(K\x01" + HUGE * 2 + b"\x86" + dtype + BYTES + b"\x89U\x01xtb"),
        "the shape of an array does not fit its 1 bytes",
    ),
    "an array of a negative shape": (
        array(lambda dtype: b"(K\x01" + b"J\xff\xff\xff\xff" * 2 + b"\x86" + dtype + BYTES + b"\x89U\x01xtb"),
        "only specify one unknown dimension",
    ),
    "an array of three dimensions": (changed(data=np.zeros((10, 3, 1024), np.uint8)), MATRIX),
    "an array of text": (array(lambda dtype: b"(K\x01K\x01K\x01\x86" + dtype + BYTES + b"\x89Ntb"), MATRIX),
    "images of another size": (changed(data=np.zeros((10, 3071), np.uint8)), BATCH),
    "no data": (changed(data=None), "it lacks data"),
    "data as bytes": (changed(data=bytes(30720)), "'data' is not an array"),
    "no labels": (changed(fine_labels=None), "it lacks fine_labels"),
    "labels as bytes": (changed(fine_labels=bytes(10)), "the labels are not a list of whole numbers"),
    "no label": (changed(fine_labels=[]), "the labels are not a list of whole numbers"),
    "fewer labels than images": (changed(fine_labels=[1] * 9), BATCH),
    "truth values as labels": (changed(fine_labels=[True] * 10), "the labels are not a list of whole numbers"),
    "strings as labels": (changed(fine_labels=["1"] * 10), "the labels are not a list of whole numbers"),
    "nested labels": (changed(fine_labels=[[1]] * 10), "the labels are not a list of whole numbers"),
    "negative labels": (changed(fine_labels=[-1] * 10), "labels must be from 0 to 255, but one is -1"),
    "huge labels": (changed(fine_labels=[2**2000] * 10), "must be from 0 to 255"),
    "a label that is no byte": (changed(fine_labels=[1] * 9 + [300]), "labels must be from 0 to 255, but one is 300"),
    "a label beyond the classes": (changed(fine_labels=[100] * 10), "training labels from 100 to 100"),
    "a file of impossible size": (changed() + bytes(1 << 21), "bytes, more than 1,112,576"),
    "a frame that is cut": (b"\x80\x04\x95\x00\x00", "not enough data"),
    "random bytes": (b"\x80\x04" + np.random.default_rng(0).bytes(1000), BATCH),
}


@pytest.mark.parametrize(("content", "words"), as_cases(DAMAGES))
def test_anything_but_a_published_record_is_refused(tmp_path, set_counts, content, words):
    set_counts("cifar100", 10, 5)
    folder = tmp_path / "cifar-100-python"
    write_cifar100(folder, 10, 5)
    (folder / "train").write_bytes(content)
    check_refused("cifar100", tmp_path, words, folder)
