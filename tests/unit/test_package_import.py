"""Importing the package: cheap, complete, and refused where it can't work."""

import json
import subprocess
import sys

import pytest

import tensor_pool
from tensor_pool import errors


def modules_after(statement: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after a statement."""
    script = f"import json, sys\n{statement}\nprint(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def test_import_loads_neither_numpy_nor_msgspec_nor_anything_heavy() -> None:
    added = modules_after("import tensor_pool") - modules_after("pass")

    ours = {name for name in added if name.startswith("tensor_pool")}
    assert ours == {"tensor_pool", "tensor_pool.errors"}
    assert not {"numpy", "msgspec", "typing", "logging", "click", "rich"} & added
    assert len(added) < 10, sorted(added)


def test_lazy_names_load_only_their_own_module() -> None:
    added = modules_after("import tensor_pool; tensor_pool.Dtype")

    assert "tensor_pool.datatypes" in added
    assert not {"numpy", "msgspec"} & added


def test_a_media_driver_in_a_process_of_its_own_loads_only_what_it_needs() -> None:
    added = modules_after("import tensor_pool.transport.media_main")

    assert "tensor_pool._native" in added
    assert not {"numpy", "msgspec", "click"} & added, "loading msgspec takes longer than all the rest"


def test_every_public_name_resolves_and_is_listed() -> None:
    for name in tensor_pool.__all__:
        assert getattr(tensor_pool, name) is not None
    assert dir(tensor_pool) == sorted(tensor_pool.__all__)


def test_every_error_of_the_library_is_public() -> None:
    assert set(errors.__all__) <= set(tensor_pool.__all__)
    for name in errors.__all__:
        assert getattr(tensor_pool, name) is getattr(errors, name)


def test_unknown_attribute_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'konnect'"):
        tensor_pool.konnect  # noqa: B018


def test_version_is_that_of_the_installed_distribution() -> None:
    assert tensor_pool.__version__.split(".")[0].isdigit()


def test_version_of_a_tree_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib import metadata

    def not_found(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", not_found)
    assert tensor_pool._installed_version() == "0+unknown"


@pytest.mark.req("WIRE-15.1-12")
def test_big_endian_machines_are_refused() -> None:
    with pytest.raises(ImportError, match=r"little-endian machine, this one is big-endian"):
        tensor_pool._require_little_endian("big")
    tensor_pool._require_little_endian("little")


class TestErrorText:
    def test_what_where_and_what_to_try_have_a_line_each(self) -> None:
        error = errors.ConfigError("unknown key x.y", where="file a.toml", hint="did you mean x.z?")

        assert str(error).splitlines() == [
            "unknown key x.y",
            "   at: file a.toml",
            "  try: did you mean x.z?",
        ]
        assert (error.message, error.where, error.hint) == (
            "unknown key x.y",
            "file a.toml",
            "did you mean x.z?",
        )

    def test_absent_parts_leave_no_line(self) -> None:
        assert str(errors.TensorPoolError("what")) == "what"
        assert str(errors.TensorPoolError("what", where="here")) == "what\n   at: here"


class TestRaisedAt:
    def test_names_the_innermost_frame(self) -> None:
        def innermost() -> None:
            raise ValueError

        with pytest.raises(ValueError) as caught:  # noqa: PT011 - any will do
            innermost()
        line = innermost.__code__.co_firstlineno + 1
        assert errors.raised_at(caught.value) == f"{__file__}:{line} in innermost"

    def test_an_error_that_was_never_raised_has_no_place(self) -> None:
        assert errors.raised_at(ValueError()) == "never raised"
