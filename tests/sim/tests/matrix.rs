//! The failure matrix: every cell of section 9 has a script or a reason, and every script does what its page says.
//!
//! The scripts run shipped machines in a simulated world; what that cannot show is in the crate's documentation.

use std::collections::BTreeSet;

use covenant_fault::CrashPoint;
use covenant_sim::matrix::{self, Anomaly, How, Message, Mix, Page, Way, plan, stories};
use covenant_sim::{Ask, Death, Does, Node, Setup, World};

/// Writes the pages anew.
const REGENERATE: &str = "cargo run -p covenant-sim -- matrix --write";

fn pages() -> Vec<Page> {
    match matrix::pages() {
        Ok(pages) => pages,
        Err(wrong) => panic!("{} scripts fail:\n{}", wrong.len(), wrong.join("\n")),
    }
}

fn page<'a>(pages: &'a [Page], name: &str) -> &'a str {
    let found = pages.iter().find(|page| page.name == name);
    &found.unwrap_or_else(|| panic!("there is no page {name}")).text
}

#[test]
fn what_each_side_does_is_what_the_golden_pages_say() {
    let differences = matrix::differences(&pages(), &matrix::directory()).unwrap();
    let texts: Vec<String> = differences.iter().map(ToString::to_string).collect();
    assert!(
        texts.is_empty(),
        "{}\nIf that is right, write them anew and read what changed: {REGENERATE}",
        texts.join("\n")
    );
}

#[test]
fn every_cell_of_section_9_has_a_script_or_stands_in_the_table_with_a_reason() {
    let pages = pages();
    let impossible = page(&pages, "IMPOSSIBLE.md");
    let mut scripts = 0;
    for (point, mix) in stories() {
        let text = page(&pages, &format!("{point}.md"));
        let story = text.split(&format!("\n## {mix}\n")).nth(1).unwrap();
        let story = story.split("\n## ").next().unwrap();
        let headings: BTreeSet<&str> = story
            .lines()
            .filter_map(|line| line.strip_prefix("### "))
            .collect();
        let row = impossible.contains(&format!("| `{point}` | {mix} | "));
        if row {
            assert!(
                headings.is_empty(),
                "{point}, {mix} cannot occur and has a script"
            );
            continue;
        }
        for way in Way::all() {
            let way = way.to_string();
            assert!(
                headings.contains(way.as_str()),
                "{point}, {mix}, {way} has neither"
            );
        }
        scripts += headings.len();
    }
    assert_eq!(
        scripts, 480,
        "cells with a script; those in the table are the rest of 558"
    );
}

#[test]
fn every_message_has_a_script_for_everything_that_can_become_of_it() {
    let pages = pages();
    let names = [
        "m.duplicate.md",
        "m.lost.md",
        "m.late.receiver.md",
        "m.late.sender.md",
        "m.replaced.md",
        "m.older.md",
        "m.foreign.md",
        "m.lineage.md",
    ];
    assert_eq!(names.len(), Anomaly::ALL.len());
    for name in names {
        let text = page(&pages, name);
        for message in Message::ALL.iter().copied() {
            let heading = format!("\n## {}\n", message.word());
            assert!(text.contains(&heading), "{name} has no {}", message.word());
        }
    }
}

#[test]
fn what_stands_in_the_table_is_not_reached_by_any_node() {
    for (point, mix) in stories().filter(|(point, mix)| plan(*point, *mix).is_err()) {
        for node in [Node::Coordinator, Node::Participant(0), Node::Participant(1)] {
            let mut world = World::new(Setup::default());
            let branches = match mix {
                Mix::Commit => [Does::Moves(0, -5), Does::Moves(0, 5)],
                Mix::Abort => [Does::Moves(0, -5_000), Does::Moves(0, 5_000)],
                Mix::ReadOnly => [Does::Looks(0, 1), Does::Shifts(0, 1, 5)],
            };
            let transaction = world.transaction("T", &[(0, branches[0]), (1, branches[1])]);
            world.crash_at(node, point, None, Death::Process);
            world.ask(Ask::Execute(transaction.execute()));
            assert!(
                !world.run_until_crashed(30_000),
                "{point}, {mix} is reached at {node}"
            );
            assert!(world.settle(), "{:?}", world.violation());
        }
    }
}

#[test]
fn every_point_is_reached_with_some_mix_and_heuristics_by_an_operator() {
    for point in CrashPoint::ALL {
        let plans: Vec<_> = Mix::ALL
            .iter()
            .filter_map(|mix| plan(*point, *mix).ok())
            .collect();
        assert!(!plans.is_empty(), "{point} has no script");
        let by_hand = plans.iter().all(|plan| matches!(plan.how, How::ByHand(_)));
        let heuristic = ["heuristic", "forget", "forgotten"];
        let is_heuristic = heuristic.iter().any(|word| point.name().contains(word));
        assert_eq!(by_hand, is_heuristic, "{point}");
    }
}

#[test]
fn a_page_that_differs_is_missing_or_is_left_over_is_found() {
    let page = |name: &str, text: &str| Page {
        name: name.to_owned(),
        text: text.to_owned(),
    };
    let root = tempfile::tempdir().unwrap();
    let written = [
        page("a.md", "one\n"),
        page("b.md", "two\n"),
        page("c.md", "three\n"),
    ];
    matrix::write(&written, root.path()).unwrap();
    let now = [
        page("a.md", "one\n"),
        page("b.md", "other\n"),
        page("d.md", "four\n"),
    ];
    let found = matrix::differences(&now, root.path()).unwrap();
    let names: Vec<&str> = found.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["b.md", "d.md", "c.md"]);
}
