//! The pages: one for each crash point, one for each anomaly of messages and of calls, the table of what cannot occur, and the list of them.

use std::fmt::Write;

use covenant_fault::CrashPoint;

use super::cell::{self, Scene};
use super::{Anomaly, Call, CallAnomaly, Message, Mix, Plan, Way, anomaly, call, plan, stories, words};

/// A page of `golden/`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page {
    /// The file's name.
    pub name: String,
    /// What stands in it.
    pub text: String,
}

const README: &str = "\
# The failure matrix

Every cell of section 9 of `proto/PROTOCOL.md` as a script over the simulated cluster (`covenant-sim`), and what each
side did in it. These pages are generated, and a test compares them with what the shipped code does:

    cargo test -p covenant-sim --test matrix
    cargo run -p covenant-sim -- matrix            # what differs
    cargo run -p covenant-sim -- matrix --write    # write them anew; then read what changed

## How to read them

One transaction `T`; `T#1` is its first attempt. `c` is the coordinator, `p1` and `p2` are the participants; `k`, on the
pages about calls, is whoever calls. A line is what one of them did, in order: `-> p1` sent to p1, `<- p1` got from p1,
`appends` wrote to its log, `forced` the record is durable, `loses` a crash took the record, `syncs` a start found the
record in the page cache and made it durable before it read it. `gets besides` is the anomaly: a copy, or a message that
nobody sent. `=` is what a caller is told when all is over, and which accounts changed. `(5.0 s)` is a pause. How a side
notices that a session is over is not shown; its participant dials again behind it.

A page has a heading per mix with the story up to the crash, and below it a heading per way to die and come back:

* *dies*: the process ends, and what it wrote stays in the page cache;
* *dies, unsynced data is lost*: what was not forced goes with it;
* *dies, restarts, acts, unsynced data is lost*: it comes back at once, and is cut off as soon as it has sent something
  about the transaction, or has joined and has nothing to say;
* *restarts at once*, or *after the others timed out*: 12 s later, with a deadline of 5 s, a keep-alive of 3 s and an
  alarm for what is in doubt for 10 s. The mix names what the transaction would come to without the crash: a participant
  that is away too long makes it an abort.

Every script shows that its point was reached and that the node died, heals everything, waits for quiet and runs all
checks of section 10. What cannot occur stands in [IMPOSSIBLE.md](IMPOSSIBLE.md), with the reason.

## Pages

";

/// Plays every script and writes every page, in the order of section 9.
///
/// # Errors
/// All scripts that failed, each with what was wrong.
pub fn pages() -> Result<Vec<Page>, Vec<String>> {
    let (mut pages, mut wrong) = (Vec::new(), Vec::new());
    for point in CrashPoint::ALL {
        match of_point(*point) {
            Ok(text) => pages.push(Page {
                name: format!("{point}.md"),
                text,
            }),
            Err(errors) => wrong.extend(errors),
        }
    }
    for one in Anomaly::ALL {
        match of_anomaly(one) {
            Ok(text) => pages.push(Page {
                name: format!("{}.md", words::anomaly(one).0),
                text,
            }),
            Err(errors) => wrong.extend(errors),
        }
    }
    for one in CallAnomaly::ALL.iter().copied() {
        match of_call_anomaly(one) {
            Ok(text) => pages.push(Page {
                name: format!("{}.md", words::call_anomaly(one).0),
                text,
            }),
            Err(errors) => wrong.extend(errors),
        }
    }
    if !wrong.is_empty() {
        return Err(wrong);
    }
    pages.push(Page {
        name: "IMPOSSIBLE.md".to_owned(),
        text: impossible(),
    });
    let readme = readme(&pages);
    pages.push(Page {
        name: "README.md".to_owned(),
        text: readme,
    });
    Ok(pages)
}

fn readme(pages: &[Page]) -> String {
    let mut text = README.to_owned();
    for page in pages {
        let title = page
            .text
            .lines()
            .next()
            .unwrap_or_default()
            .trim_start_matches("# ");
        let title = title.trim_matches('`');
        if page.name.trim_end_matches(".md") == title {
            push(&mut text, &format!("* [{title}]({})", page.name));
        } else {
            push(&mut text, &format!("* [{title}]({}), `{}`", page.name, page.name));
        }
    }
    text
}

fn impossible() -> String {
    let mut text = String::from(
        "# Cells that cannot occur\n\nEach row of the first table stands for all six ways to die and come back. A test arms each of these \
         points and runs the mix: none is reached.\n\n| crash point | mix | why not |\n|---|---|---|\n",
    );
    for (point, mix) in stories() {
        if let Err(why) = plan(point, mix) {
            push(&mut text, &format!("| `{point}` | {mix} | {why} |"));
        }
    }
    push(&mut text, "\n| page | message | why not |\n|---|---|---|");
    for one in Anomaly::ALL {
        for message in Message::ALL.iter().copied() {
            if let Some(why) = one.cannot(message) {
                let row = format!("| `{}` | {} | {why} |", words::anomaly(one).0, message.word());
                push(&mut text, &row);
            }
        }
    }
    push(&mut text, "\n| page | call | why not |\n|---|---|---|");
    for one in CallAnomaly::ALL.iter().copied() {
        for call in Call::ALL.iter().copied() {
            if let Some(why) = one.cannot(call) {
                let name = words::call_anomaly(one).0;
                push(&mut text, &format!("| `{name}` | {} | {why} |", call.word()));
            }
        }
    }
    text
}

fn push(text: &mut String, line: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{line}");
}

fn block(text: &mut String, lines: &[String]) {
    push(text, "```");
    for line in lines {
        push(text, line);
    }
    push(text, "```\n");
}

fn of_point(point: CrashPoint) -> Result<String, Vec<String>> {
    let mut text = format!("# `{point}`\n\n{}\n\n", words::point(point));
    let mut wrong = Vec::new();
    for mix in Mix::ALL {
        push(&mut text, &format!("## {mix}\n"));
        match plan(point, mix) {
            Ok(plan) => {
                if let Err(errors) = of_mix(&mut text, point, mix, &plan) {
                    wrong.extend(errors);
                }
            }
            Err(why) => push(&mut text, &format!("Cannot occur: {why}.\n")),
        }
    }
    if wrong.is_empty() {
        Ok(trimmed(&text))
    } else {
        Err(wrong)
    }
}

fn of_mix(text: &mut String, point: CrashPoint, mix: Mix, plan: &Plan) -> Result<(), Vec<String>> {
    let (mut shown, mut wrong): (Vec<(Way, Scene)>, _) = (Vec::new(), Vec::new());
    for way in Way::all() {
        let scene = match cell::play(point, mix, way, plan) {
            Ok(scene) => scene,
            Err(why) => {
                wrong.push(format!("{point}, {mix}, {way}: {why}"));
                continue;
            }
        };
        match shown.first() {
            None => {
                push(text, &format!("{} {} dies here:\n", words::story(mix), plan.node));
                block(text, &scene.before);
            }
            Some((_, first)) if first.before != scene.before => {
                wrong.push(format!(
                    "{point}, {mix}, {way}: the story up to the crash differs"
                ));
            }
            Some(_) => {}
        }
        push(text, &format!("### {way}\n"));
        match shown.iter().find(|(_, before)| before.after == scene.after) {
            Some((same, _)) => push(text, &format!("As *{same}*.\n")),
            None => block(text, &scene.after),
        }
        shown.push((way, scene));
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong) }
}

fn of_anomaly(one: Anomaly) -> Result<String, Vec<String>> {
    let (_, title, look) = words::anomaly(one);
    let mut text = format!("# {title}\n\n{look}\n\n");
    let mut wrong = Vec::new();
    for message in Message::ALL.iter().copied() {
        push(&mut text, &format!("## {}\n", message.word()));
        if let Some(why) = one.cannot(message) {
            push(&mut text, &format!("Cannot occur: {why}.\n"));
            continue;
        }
        push(&mut text, &format!("{}\n", words::message(one, message)));
        match anomaly::play(one, message) {
            Ok(lines) => block(&mut text, &lines),
            Err(why) => wrong.push(format!("{title}, {}: {why}", message.word())),
        }
    }
    if wrong.is_empty() {
        Ok(trimmed(&text))
    } else {
        Err(wrong)
    }
}

fn of_call_anomaly(one: CallAnomaly) -> Result<String, Vec<String>> {
    let (_, title, look) = words::call_anomaly(one);
    let mut text = format!("# {title}\n\n{look}\n\n");
    let mut wrong = Vec::new();
    for of in Call::ALL.iter().copied() {
        push(&mut text, &format!("## {}\n", of.word()));
        if let Some(why) = one.cannot(of) {
            push(&mut text, &format!("Cannot occur: {why}.\n"));
            continue;
        }
        push(&mut text, &format!("{}\n", words::call(of)));
        match call::play(one, of) {
            Ok(lines) => block(&mut text, &lines),
            Err(why) => wrong.push(format!("{title}, {}: {why}", of.word())),
        }
    }
    if wrong.is_empty() {
        Ok(trimmed(&text))
    } else {
        Err(wrong)
    }
}

/// One end of line at the end.
fn trimmed(text: &str) -> String {
    format!("{}\n", text.trim_end())
}
