"""What `tools/trace.py` takes for a test that shows a requirement, and what for a mistake."""

from __future__ import annotations

import pytest

# --- markers in Python --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "test"),
    [
        pytest.param('@pytest.mark.req("AB-1-1")\ndef test_f(): ...', "test_f", id="function"),
        pytest.param('@pytest.mark.req("AB-1-1")\nasync def test_f(): ...', "test_f", id="coroutine"),
        pytest.param('@mark.req("AB-1-1")\ndef test_f(): ...', "test_f", id="imported-mark"),
        pytest.param(
            '@pytest.mark.req("AB-1-1")\nclass TestC:\n  def test_f(self): ...', "TestC", id="class"
        ),
        pytest.param(
            'class TestC:\n  @pytest.mark.req("AB-1-1")\n  def test_f(self): ...',
            "TestC::test_f",
            id="method",
        ),
        pytest.param('pytestmark = pytest.mark.req("AB-1-1")', "", id="module"),
        pytest.param('pytestmark = [pytest.mark.slow, pytest.mark.req("AB-1-1")]', "", id="module-list"),
        pytest.param(
            'class TestC:\n  pytestmark = pytest.mark.req("AB-1-1")', "TestC", id="class-pytestmark"
        ),
        pytest.param(
            'TestC = M.TestCase\nTestC.pytestmark = [pytest.mark.req("AB-1-1")]', "TestC", id="state-machine"
        ),
        pytest.param(
            '@pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.req("AB-1-1"))])\n'
            "def test_f(x): ...",
            "test_f",
            id="param",
        ),
        pytest.param(
            'CASES = [pytest.param(1, marks=[pytest.mark.req("AB-1-1")])]\n'
            '@pytest.mark.parametrize("x", CASES)\ndef test_f(x): ...',
            "CASES",
            id="list-of-params",
        ),
        pytest.param(
            'CASES: list = [pytest.param(1, marks=pytest.mark.req("AB-1-1"))]\n'
            'cases = pytest.mark.parametrize("x", [case for case in CASES])\n@cases\ndef test_f(x): ...',
            "CASES",
            id="annotated-list",
        ),
    ],
)
def test_python_markers(repository, source, test):
    repository.write("tests/unit/test_x.py", source)
    assert repository.tests_of("AB-1-1") == ["::".join(filter(None, ["tests/unit/test_x.py", test]))]
    assert repository.errors() == []


def test_one_test_counts_once_and_several_tests_are_all_named(repository):
    repository.write(
        "tests/test_x.py",
        """\
        import pytest
        @pytest.mark.req("AB-1-1")
        @pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.req("AB-1-1"))])
        def test_a(x): ...
        @pytest.mark.req("AB-1-1")
        def test_b(): ...
        """,
    )
    assert repository.tests_of("AB-1-1") == ["tests/test_x.py::test_a", "tests/test_x.py::test_b"]


@pytest.mark.parametrize(
    ("source", "error"),
    [
        (
            "@pytest.mark.req(*IDS)\ndef test_f(): ...",
            "1: ids of a req marker must be written out as strings",
        ),
        ("@pytest.mark.req(ID)\ndef test_f(): ...", "1: ids of a req marker must be written out as strings"),
        ("@pytest.mark.req()\ndef test_f(): ...", "1: a req marker without ids"),
        (
            '@pytest.mark.req("AB-1-1")\ndef check(): ...',
            "2: check carries a req marker, but pytest does not collect it",
        ),
        (
            '@pytest.mark.req("AB-1-1")\nclass Machine: ...',
            "2: Machine carries a req marker, but pytest does not collect it",
        ),
        ("\ndef test_f(:", "2: not Python: invalid syntax"),
        (
            'CASES = [pytest.param(1, marks=pytest.mark.req("AB-1-1"))]\ndef test_f(): print(CASES)',
            "1: CASES carries a req marker, but no test is parametrized with it",
        ),
        (
            'CASES: dict = {"a": pytest.mark.req("AB-1-1")}',
            "1: CASES carries a req marker, but no test is parametrized with it",
        ),
    ],
)
def test_python_markers_that_show_nothing_are_errors(repository, source, error):
    repository.write("tests/test_x.py", source)
    assert repository.errors() == [f"tests/test_x.py:{error}"]


def test_a_table_may_stand_in_another_file_than_the_tests_that_it_parametrizes(repository):
    table = 'CASES = [pytest.param(1, marks=pytest.mark.req("AB-1-1"))]'
    repository.write("tests/golden.py", table)
    assert repository.tests_of("AB-1-1") == []
    repository.write("tests/test_x.py", '@pytest.mark.parametrize("x", golden.CASES)\ndef test_f(x): ...')
    assert repository.tests_of("AB-1-1") == ["tests/golden.py::CASES"]
    assert repository.errors() == []


def test_other_markers_and_unmarked_tests_are_no_evidence(repository):
    repository.write(
        "tests/test_x.py", '@pytest.mark.slow\n@req("AB-1-1")\ndef test_f(): pytest.mark.other("AB-1-1")'
    )
    assert repository.tests_of("AB-1-1") == []


# --- comments in Rust ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("// req: AB-1-1, AB-1-2\n#[test]\nfn shows() {}", id="above-attribute"),
        pytest.param("#[test]\n// req: AB-1-1, AB-1-2\nfn shows() {}", id="below-attribute"),
        pytest.param("/// req: AB-1-1\n/// req: AB-1-2\n#[test]\nfn shows() {}", id="doc-comments"),
        pytest.param(
            "mod t {\n  // req: AB-1-1, AB-1-2\n  // Why.\n  #[test]\n  #[should_panic]\n  fn shows() {}\n}",
            id="among-others",
        ),
        pytest.param("// req: AB-1-1, AB-1-2\n#[tokio::test]\nasync fn shows() {}", id="path"),
        pytest.param("// req: AB-1-1, AB-1-2\n#[cfg_attr(not(loom), test)]\nfn shows() {}", id="cfg-attr"),
        pytest.param("proptest! {\n// req: AB-1-1, AB-1-2\n#[test]\nfn shows(a in 0..9) {}\n}", id="macro"),
    ],
)
def test_rust_comments(repository, source):
    repository.write("crates/core/src/ring.rs", source)
    for id_ in ("AB-1-1", "AB-1-2"):
        assert repository.tests_of(id_) == ["crates/core/src/ring.rs::shows"]
    assert repository.errors() == []


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("// req: AB-1-1\nfn not_a_test() {}", id="plain-function"),
        pytest.param("// req: AB-1-1\n#[cfg(test)]\nmod tests {\n#[test]\nfn shows() {}\n}", id="module"),
        pytest.param("// req: AB-1-1\nstruct Ring;\n#[test]\nfn shows() {}", id="something-between"),
        pytest.param("// req: AB-1-1", id="end-of-file"),
    ],
)
def test_rust_comments_above_no_test_are_errors(repository, source):
    repository.write("crates/core/src/ring.rs", source)
    assert repository.errors() == ["crates/core/src/ring.rs:1: a req comment that is not above a test"]
    assert repository.tests_of("AB-1-1") == []


@pytest.mark.parametrize("attribute", ["#[ignore]", '#[ignore = "slow"]'])
@pytest.mark.parametrize("order", ["// req: AB-1-1\n#[test]\n{}", "{}\n#[test]\n// req: AB-1-1"])
def test_an_ignored_test_shows_nothing(repository, attribute, order):
    source = order.format(attribute) + "\nfn ignored() {}\n// req: AB-1-2\n#[test]\nfn shows() {}\n"
    repository.write("crates/core/src/ring.rs", source)
    assert repository.tests_of("AB-1-1") == []
    assert repository.tests_of("AB-1-2") == ["crates/core/src/ring.rs::shows"], "the next one is not ignored"
    assert [gap["id"] for gap in repository.data()[1]["gaps"]] == ["AB-1-1"]
    assert repository.data()[1]["errors"] == []


def test_one_comment_speaks_for_one_function(repository):
    repository.write(
        "crates/core/src/ring.rs", "// req: AB-1-1\n#[test]\nfn first() {}\n#[test]\nfn second() {}\n"
    )
    assert repository.tests_of("AB-1-1") == ["crates/core/src/ring.rs::first"]


def test_a_test_lends_its_attribute_to_no_later_function(repository):
    repository.write("crates/core/src/ring.rs", "#[test]\nfn first() {}\n// req: AB-1-1\nfn plain() {}\n")
    assert repository.errors() == ["crates/core/src/ring.rs:3: a req comment that is not above a test"]


def test_build_outputs_are_not_read(repository):
    repository.write("crates/core/target/gen.rs", "// req: AB-1-1\n#[test]\nfn shows() {}")
    assert repository.tests_of("AB-1-1") == []


# --- citations ----------------------------------------------------------------------------------


def test_citations_inform_but_show_nothing(repository):
    repository.write(
        "crates/core/src/ring.rs", "\n// The mask [AB-1-1, AB-1-2] wants a power of two.\nlet x = a[0];"
    )
    repository.write("python/pkg/uri.py", "# [AB-1-1] and list[int] and [X-1-1]\n")
    status, data = repository.data()
    cited = {row["id"]: row["citations"] for row in data["rows"]}
    assert cited["AB-1-1"] == ["python/pkg/uri.py:1", "crates/core/src/ring.rs:2"]
    assert cited["AB-1-2"] == ["crates/core/src/ring.rs:2"]
    assert status == 1
    assert [gap["id"] for gap in data["gaps"]] == ["AB-1-1", "AB-1-2"]
