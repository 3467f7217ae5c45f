"""The picture of a graph: what it says, where it leads, and that nothing of a row is ever more than text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from horsies.web.svg.folding import GraphNode, fold
from horsies.web.svg.graph import GraphLinks, graph_svg, legend_svg
from horsies.web.svg.layout import lay_out
from horsies.web.svg.states import URGENCY
from tests.each import each
from tests.unit.web.reading import SVG, by_class, by_id, description, links, read, texts
from tests.unit.web.strategies import HOSTILE, a_node, few, graphs, random_dag

LINKS = GraphLinks(
    node=lambda index: f"nodes/{index}", unfold=lambda key: f"?open={key}#{key}", refold=lambda key: f"#{key}"
)
DIAMOND = [a_node(0), a_node(1, "FAILED", detail="TIMEOUT"), a_node(2, "RUNNING"), a_node(3, "PENDING")]
DIAMOND_EDGES = [(0, 1), (0, 2), (1, 3), (2, 3)]


def drawn(nodes: list[GraphNode], edges: list[tuple[int, int]], opened: tuple[str, ...] = ()) -> str:
    return graph_svg(lay_out(fold(nodes, edges, opened=opened)), title="Graph of order 17", links=LINKS)


def test_m91_a_diamond_has_four_linked_boxes_and_four_edges() -> None:
    root = read(drawn(DIAMOND, DIAMOND_EDGES))
    assert links(root) == ["nodes/0", "nodes/1", "nodes/2", "nodes/3"]
    assert {"step_0", "step_1", "step_2", "step_3", "TIMEOUT"} <= set(texts(root))
    assert len(by_class(root, "edge")) == 4
    assert [edge.get("data-to") for edge in by_class(root, "edge-failed")] == ["node-3"]
    assert by_id(root, "node-1").get("class") == "node status-failed"
    assert root[0].text == "Graph of order 17"
    assert description(root) == (
        "4 nodes: 1 failed, 1 running, 1 pending, 1 completed. The first failed node is node 1."
    )


def test_m92_a_state_is_told_by_a_sign_and_a_word_too() -> None:
    nodes = [a_node(at, status) for at, status in enumerate((*URGENCY, "ODD"))]
    root = read(graph_svg(lay_out(fold(nodes, [], wide=50)), title="t"))
    assert len({sign.get("d") for sign in by_class(root, "sign")}) == len(nodes)
    tooltips = [by_id(root, f"node-{node.index}")[0].text or "" for node in nodes]
    assert all(node.status.lower() in tip for node, tip in zip(nodes, tooltips, strict=True))
    assert by_id(root, f"node-{len(URGENCY)}").get("class") == "node status-unknown"


def test_m91_a_folded_group_says_what_failed_and_leads_there() -> None:
    nodes = [a_node(at, "FAILED" if at in (17, 23) else "COMPLETED") for at in range(32)]
    edges = [(0, at) for at in range(1, 31)] + [(at, 31) for at in range(1, 31)]
    root = read(drawn(nodes, edges))
    group = by_id(root, "siblings-1")
    assert group.get("class") == "group status-failed"
    assert set(texts(group)) == {"30 × app.work", "2 failed, 28 completed", "first failed: node 17"}
    assert links(group) == ["?open=siblings-1#siblings-1", "nodes/17"]
    parts = by_class(group, "part")
    assert [part.get("class") for part in parts] == ["part status-failed", "part status-completed"]
    assert "Drawn as 3 boxes." in description(root)


def test_m91_an_open_map_has_a_cell_for_each_element() -> None:
    nodes = [a_node(0, "RUNNING", kind="MAP", label="resize")]
    nodes += [a_node(at, "FAILED" if at == 20 else "COMPLETED", map_index=0, kind="ELEMENT") for at in range(1, 41)]
    root = read(drawn(nodes, [], opened=("map-0",)))
    assert len(by_class(root, "cell")) == 40
    assert "step_20" in texts(by_id(root, "node-20"))
    assert links(by_id(root, "map-0"))[:3] == ["#map-0", "nodes/0", "nodes/20"]
    assert by_id(root, "map-0").get("class") == "group status-failed kind-map"


def test_m91_an_open_map_of_many_says_what_it_does_not_show() -> None:
    nodes = [a_node(0, "RUNNING", kind="MAP", label="resize")]
    nodes += [a_node(at, "COMPLETED", map_index=0, kind="ELEMENT") for at in range(1, 1_001)]
    root = read(drawn(nodes, [], opened=("map-0",)))
    assert len(by_class(root, "cell")) == 400
    assert "not shown: 600 completed" in texts(root)


def test_m91_long_labels_are_cut_and_whole_in_the_tooltip() -> None:
    name = "a_node_with_a_name_that_does_not_fit_into_any_box"
    root = read(drawn([a_node(0, label=name)], []))
    shown = texts(root)[0]
    assert shown.endswith("…")
    assert name.startswith(shown[:-1])
    assert name in (by_id(root, "node-0")[0][0].text or "")


def test_m91_without_links_it_is_an_image() -> None:
    root = read(graph_svg(lay_out(fold(DIAMOND, DIAMOND_EDGES)), title="t"))
    assert root.get("role") == "img"


def test_m91_a_workflow_without_nodes_says_so() -> None:
    root = read(drawn([], []))
    assert texts(root) == ["no nodes"]


def test_m91_a_circle_is_drawn_and_marked() -> None:
    root = read(drawn([a_node(0), a_node(1)], [(0, 1), (1, 0)]))
    assert len(by_class(root, "edge-back")) == 1


@few
@given(graphs(), st.sets(st.sampled_from(("map-1", "siblings-0", "level-0"))))
def test_m91_any_rows_give_a_picture_and_always_the_same(
    graph: tuple[list[GraphNode], list[tuple[int, int]]], opened: set[str]
) -> None:
    layout = lay_out(fold(*graph, opened=opened, wide=3, most_boxes=15))
    picture = graph_svg(layout, title="t", links=LINKS)
    read(picture)
    assert picture == graph_svg(layout, title="t", links=LINKS)


@each("hostile", HOSTILE, ids=range(len(HOSTILE)))
def test_m93_hostile_texts_stay_texts(hostile: str) -> None:
    nodes = [
        GraphNode(0, hostile, "FAILED", hostile, "MAP", note=hostile),
        GraphNode(1, hostile, hostile, hostile, hostile, 0, note=hostile),
        *(GraphNode(at, hostile, hostile, hostile, note=hostile) for at in range(2, 22)),
    ]
    for opened in ((), ("map-0", "siblings-2")):
        layout = lay_out(fold(nodes, [(0, 30)], opened=opened))
        picture = graph_svg(layout, title=hostile or "t", links=LINKS)
        read(picture)
        assert len(picture) < 300_000


@given(st.text(max_size=60))
def test_m93_any_text_is_kept_or_made_visible(label: str) -> None:
    root = read(drawn([a_node(0, label=label)], []))
    assert "<script" not in drawn([a_node(0, label="<script>")], [])
    assert by_id(root, "node-0")[0].tag == f"{SVG}a"


@each(
    "url",
    [
        "javascript:alert(1)",
        "JaVaScRiPt:alert(1)",
        " javascript:alert(1)",
        "java\nscript:alert(1)",
        "data:text/html,x",
        "//evil.example.com/",
        "/\\evil.example.com",
        "\\\\evil.example.com",
        "http" + "://evil.example.com",
        "\x01javascript:alert(1)",
        "nodes/17 onclick=x",
        'nodes/"17"',
        "",
        None,
    ],
)
def test_m93_only_relative_addresses_become_links(url: str | None) -> None:
    every = GraphLinks(node=lambda _: url, unfold=lambda _: url, refold=lambda _: url)
    nodes = [a_node(at) for at in range(20)]
    for opened in ((), ("siblings-0",)):
        root = read(graph_svg(lay_out(fold(nodes, [], opened=opened)), title="t", links=every))
        assert links(root) == []


@each("url", ["nodes/17", "../17?open=map-3,map-4&live=1#node-2", "/horsies/x%20y", "?a=b:c", "#x"])
def test_m91_relative_addresses_become_links(url: str) -> None:
    root = read(graph_svg(lay_out(fold([a_node(0)], [])), title="t", links=GraphLinks(node=lambda _: url)))
    assert links(root) == [url]


def test_m91_m95_a_large_graph_becomes_a_bounded_picture() -> None:
    nodes, edges = random_dag(2_000, 4, 300)
    layout = lay_out(fold(nodes, edges))
    picture = graph_svg(layout, title="t", links=LINKS)
    assert len(picture) < 1_500_000
    read(picture)


def test_m92_the_legend_names_each_state_once() -> None:
    root = read(legend_svg(["COMPLETED", "FAILED", "COMPLETED"]))
    assert texts(root) == ["failed", "completed"]
