//! The failure matrix: every cell has a script or a reason, and every script does what its page says.
//!
//! The scripts run shipped machines in a simulated world; what that cannot show is in the crate's documentation.

use covenant_fault::CrashPoint;
use covenant_sim::matrix::{self, Anomaly, Call, CallAnomaly, Cell, How, Message, Mix, Page, plan, stories};
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
fn every_cell_has_a_script_or_stands_in_the_table_with_a_reason() {
    let pages = pages();
    let gaps: Vec<String> = matrix::gaps(&pages).iter().map(ToString::to_string).collect();
    assert!(gaps.is_empty(), "neither or both: {gaps:#?}");
    let of_section_9 = |cell: &&Cell| cell.headings.len() == 2;
    let (cells, table) = (matrix::cells(), page(&pages, "IMPOSSIBLE.md"));
    let scripts = cells.iter().filter(of_section_9);
    let scripts = scripts.filter(|cell| !table.contains(&cell.row)).count();
    assert_eq!(
        (scripts, cells.iter().filter(of_section_9).count()),
        (480, 558),
        "cells of section 9 with a script, and all"
    );
    let messages = Message::ALL.len() * Anomaly::ALL.len() + Call::ALL.len() * CallAnomaly::ALL.len();
    assert_eq!(cells.len() - 558, messages);
}

/// The pages without what covers this cell.
fn without(pages: &[Page], cell: &Cell) -> Vec<Page> {
    let mut pages = pages.to_vec();
    for page in &mut pages {
        let mut kept = Vec::new();
        let mut at: Vec<&str> = Vec::new();
        for line in page.text.lines() {
            if let Some(heading) = line.strip_prefix("## ") {
                at = vec![heading];
            } else if let Some(heading) = line.strip_prefix("### ") {
                at.truncate(1);
                at.push(heading);
            }
            let in_script = page.name == cell.page && at == cell.headings;
            if !in_script && !line.starts_with(&cell.row) {
                kept.push(line);
            }
        }
        page.text = kept.join("\n");
    }
    pages
}

#[test]
fn a_script_or_a_row_that_is_taken_away_is_missed() {
    let pages = pages();
    let mut last = String::new();
    for cell in matrix::cells() {
        // One way of each story, one row of each table, and every anomaly.
        if std::mem::replace(&mut last, cell.row.clone()) == cell.row {
            continue;
        }
        let gaps = matrix::gaps(&without(&pages, &cell));
        assert!(gaps.contains(&cell), "nobody misses {cell}");
    }
}

#[test]
fn a_script_that_does_not_end_in_the_checks_and_a_row_without_a_reason_are_missed() {
    let mut pages = pages();
    for page in &mut pages {
        page.text = page.text.replace("\n=   ", "\nc   ");
        let lines = page.text.lines().map(|line| match line.split_once(" | ") {
            Some((first, rest)) if line.starts_with("| `") => {
                let second = rest.split(" | ").next().unwrap_or_default();
                format!("{first} | {second} |  |")
            }
            _ => line.to_owned(),
        });
        page.text = lines.collect::<Vec<_>>().join("\n");
    }
    assert_eq!(matrix::gaps(&pages), matrix::cells());
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
