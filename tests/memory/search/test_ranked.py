"""Files are ranked by words, meaning or both; files that a reader may not see have no influence."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hansard.agents.memory.search import DEPTH, Ranked, Rankers, fuse, search
from hansard.domain.errors import BadValue
from hansard.projections.errors import BadQuery
from hansard.projections.file_search import PIECE_CHARACTERS, FileVectors, FileWords, pieces

TREE = {
    "AGENTS.md": "Answer in bullets. Action items come last.",
    "skills/pdf/SKILL.md": "Reads a PDF file and fills its forms.",
    "notes/paris.md": "The office in Paris is closed in August.",
}


class Letters:
    """An embedder that counts the occurrences of each letter."""

    name = "letters"
    digest = "1"
    dims = 26

    def __init__(self) -> None:
        self.asked: list[str] = []

    def embed(self, texts, /):
        """A vector a text."""
        self.asked += texts
        return [[float(text.lower().count(chr(97 + at))) for at in range(26)] for text in texts]


@pytest.fixture
def rankers():
    """Words, and vectors of letters."""
    return Rankers(FileWords(), FileVectors(Letters()))


def test_words_rank_by_how_rare_they_are(rankers):
    """Files rank by their rare words; common words tell nothing."""
    result = search(TREE, "what is in the forms of a PDF in August", rankers, by="words")
    assert [each.path for each in result.hits] == ["skills/pdf/SKILL.md", "notes/paris.md"]
    assert "PDF" in result.hits[0].excerpt
    assert search(TREE, "the", rankers, by="words").hits


def test_a_word_of_the_path_counts(rankers):
    """A word of the path matches, so a file is found by its name."""
    assert search(TREE, "skills", rankers, by="words").hits[0].path == "skills/pdf/SKILL.md"


def test_meaning_ranks_by_the_nearest_piece(rankers):
    """A file ranks by its best paragraph."""
    tree = {"a": "zzzz\n\n" + "q" * 800 + "\n\nhello", "b": "hexxo"}
    best = search(tree, "hello", rankers, by="meaning").hits[0]
    assert (best.path, best.excerpt) == ("a", "hello")
    assert best.score == pytest.approx(1.0)


def test_only_what_changed_is_embedded_again():
    """Only changed texts are embedded again; a known text in another file is not."""
    embedder = Letters()
    rankers = Rankers(FileWords(), FileVectors(embedder))
    search({"a": "one", "b": "two"}, "x", rankers, by="meaning")
    embedder.asked.clear()
    moved = search({"c": "one", "b": "three"}, "one", rankers, by="meaning")
    assert embedder.asked == ["three", "one"]  # the file, and the question
    assert moved.hits[0].path == "c"


def test_an_embedder_that_gives_no_vectors_is_reported(rankers):
    """An embedder's invalid vectors are an error, and the index is unchanged."""

    class Short(Letters):
        def embed(self, texts, /):
            """Too few numbers."""
            return [[1.0]] * len(texts)

    with pytest.raises(BadValue, match="letters"):
        search(TREE, "x", Rankers(FileWords(), FileVectors(Short())), by="meaning")


def test_files_of_one_kind_alone_are_searched(rankers):
    """Only procedures or facts can be selected; an episode is no file of a tree, as the remedy
    says.
    """
    words = "bullets PDF August"
    paths = {
        kind: [each.path for each in search(TREE, words, rankers, by="words", kind=kind).hits]
        for kind in ("", "procedural", "semantic")
    }
    assert paths["procedural"] == ["AGENTS.md"]
    assert sorted(paths["semantic"]) == ["notes/paris.md", "skills/pdf/SKILL.md"]
    assert sorted(paths[""]) == sorted(TREE)
    with pytest.raises(BadValue, match="hansard search"):
        search(TREE, words, rankers, kind="episodic")


@pytest.mark.parametrize(
    "options", [{"by": "smell"}, {"limit": 0}, {"glob": "**/**/**"}, {"kind": "tacit"}]
)
def test_invalid_options_are_refused(rankers, options):
    """Invalid options are refused, with the valid ones."""
    with pytest.raises(BadValue):
        search(TREE, "x", rankers, **options)


def test_a_search_without_words_or_embedder_is_refused():
    """A search without words or embedder is refused, with the remedy."""
    with pytest.raises(BadValue, match="embedder="):
        search(TREE, "x", Rankers(FileWords()), by="meaning")
    with pytest.raises(BadQuery):
        search(TREE, "?!", Rankers(FileWords()))


def test_a_fusion_prefers_what_both_orders_have():
    """A fusion prefers files that both orders have; ties are ordered by path."""
    one = [Ranked("a", 9.0), Ranked("b", 8.0, "text")]
    two = [Ranked("b", 0.9), Ranked("c", 0.8)]
    assert [each.path for each in fuse([one, two])] == ["b", "a", "c"]
    assert fuse([one, two])[0].excerpt == "text"


_PATHS = st.sampled_from(["a.md", "b/c.md", "b/d.md", "e.md"])
_TEXTS = st.text(alphabet="abc \n", max_size=30)


@pytest.mark.slow
@given(
    seen=st.dictionaries(_PATHS, _TEXTS, max_size=4),
    other=st.dictionaries(st.sampled_from(["x.md", "y.md"]), _TEXTS, max_size=2),
    question=st.sampled_from(["a", "b c", "cab a", "abc"]),
    by=st.sampled_from(["words", "meaning", "both"]),
)
@settings(max_examples=max(10, settings().max_examples // 3))
def test_files_that_a_reader_may_not_see_change_nothing(seen, other, question, by):
    """Hidden files change no hit and no score of a shared index."""
    used = Rankers(FileWords(), FileVectors(Letters()))
    search({**seen, **other}, question, used, by=by)
    fresh = Rankers(FileWords(), FileVectors(Letters()))
    assert search(seen, question, used, by=by) == search(seen, question, fresh, by=by)


@given(text=st.text(alphabet="ab \n", max_size=3_000))
def test_pieces_are_whole_paragraphs_that_lose_nothing(text):
    """Pieces are whole paragraphs within the bound, and contain all letters in order."""
    made = pieces(text)
    assert all(len(piece) <= PIECE_CHARACTERS for piece in made)
    assert "".join("".join(made).split()) == "".join(text.split())


def recalls(rankers, tree, questions, by):
    """Return how often the right file is the first, and among the first five."""
    places = [
        [each.path for each in search(tree, question, rankers, by=by, limit=5).hits]
        for question in questions.values()
    ]
    first = sum(paths[:1] == [path] for path, paths in zip(questions, places, strict=True))
    five = sum(path in paths for path, paths in zip(questions, places, strict=True))
    return first / len(questions), five / len(questions)


class Once:
    """A ranker that caches another ranker's answer to each question, since `both` reuses them."""

    def __init__(self, ranker) -> None:
        self._ranker = ranker
        self._answers: dict[str, list[tuple[str, float, str]]] = {}

    def ranked(self, tree, question, limit, /):
        """Return as many first hits as a fusion uses."""
        assert limit <= DEPTH
        if question not in self._answers:
            self._answers[question] = self._ranker.ranked(tree, question, DEPTH)
        return self._answers[question][:limit]


@pytest.fixture(scope="module")
def static():
    """Rankers with vectors of words; for all tests of this module."""
    from hansard.agents.memory.search import StaticVectors  # noqa: PLC0415 -- takes long

    return Rankers(FileWords(), FileVectors(StaticVectors()))


@pytest.mark.thorough(quick="test_meaning_ranks_by_the_nearest_piece")
def test_sixty_paraphrases_are_found_by_meaning_alone(static, evidence):
    """Paraphrases without common words are found by vectors, and by the fusion of both."""
    lines = Path(__file__).with_name("paraphrases.tsv").read_text().splitlines()
    pairs = [line.split("\t") for line in lines if not line.startswith("#")]
    tree = {f"notes/{number:02}.md": note for number, (note, _) in enumerate(pairs)}
    questions = {f"notes/{number:02}.md": question for number, (_, question) in enumerate(pairs)}
    once = Rankers(Once(static.words), Once(static.meaning))
    rates = {by: recalls(once, tree, questions, by) for by in ("words", "meaning", "both")}
    for by, (first, five) in rates.items():
        evidence.record(f"memory.search.paraphrases.{by}", recall_1=first, recall_5=five)
    assert len(pairs) == 60
    assert rates["words"] == (0.0, 0.0)
    assert rates["meaning"] >= (0.7, 0.95)
    assert rates["both"][1] >= 0.95


@pytest.mark.real
@pytest.mark.thorough(quick="test_meaning_ranks_by_the_nearest_piece")
def test_skills_are_found_by_their_descriptions(static, real_data, evidence):
    """Skills are found best by the fusion, then by words, then by vectors."""
    tree, questions = skills(real_data / "agent-skills" / "dev")
    once = Rankers(Once(static.words), Once(static.meaning))
    rates = {by: recalls(once, tree, questions, by) for by in ("words", "meaning", "both")}
    for by, (first, five) in rates.items():
        name = f"memory.search.skills.{by}"
        evidence.record(name, skills=len(tree), recall_1=first, recall_5=five)
    assert len(tree) == 131
    assert rates["words"] >= (0.87, 0.96)
    assert rates["meaning"] >= (0.80, 0.92)
    assert rates["both"] >= max(rates["words"], rates["meaning"])


def skills(root):
    """Return skill bodies by path, and the descriptions that are usable questions."""
    import frontmatter  # noqa: PLC0415 -- only this test needs it

    every = {}
    for path in sorted(root.rglob("SKILL.md")):
        post = frontmatter.loads(path.read_text())
        every[str(path.relative_to(root))] = (str(post.get("description") or ""), post.content)
    descriptions = [description for description, _ in every.values()]
    usable = {
        path: (description, body)
        for path, (description, body) in every.items()
        if len(description) >= 60 and descriptions.count(description) == 1 and len(body) >= 300
    }
    return {path: body for path, (_, body) in usable.items()}, {
        path: description for path, (description, _) in usable.items()
    }
