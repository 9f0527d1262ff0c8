//! What can become of a message on its way, and the script that does it.

use covenant_rules::Lineage;

use super::Message;
use super::cell::Script;
use super::message::Value;
use crate::node::Node;
use crate::setup::Death;
use crate::world::World;

/// Within this a script's next step must come about.
pub(super) const PATIENCE_MS: u64 = 10_000;
/// By then a story without further faults is over.
pub(super) const OVER_MS: u64 = 5_000;
/// Longer than a log's birth lies before its making: what was created before is before that.
pub(super) const AWAY_MS: u64 = 12_000;
/// By then everybody has joined and asked.
const ASKS_MS: u64 = 500;
/// A coordinator log that nobody has.
const FOREIGN: Lineage = Lineage(0xF0);

/// What becomes of a message.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Anomaly {
    /// It arrives twice in a row, and once more when all is over.
    Duplicate,
    /// It is lost with its session.
    Lost,
    /// It arrives when its receiver has restarted.
    LateAtReceiver,
    /// It arrives when its sender has restarted and not yet joined.
    LateFromSender,
    /// It arrives when its session is replaced.
    Replaced,
    /// It arrives when a later start of its sender has joined.
    OlderIncarnation,
    /// It is about an attempt of another coordinator log.
    ForeignLineage,
    /// A participant of the same name and another lineage says it.
    OtherParticipant,
}

impl Anomaly {
    /// In the order of the pages.
    pub const ALL: [Self; 8] = [
        Self::Duplicate,
        Self::Lost,
        Self::LateAtReceiver,
        Self::LateFromSender,
        Self::Replaced,
        Self::OlderIncarnation,
        Self::ForeignLineage,
        Self::OtherParticipant,
    ];

    /// Why it cannot become of this message, if it cannot.
    #[must_use]
    pub fn cannot(self, message: Message) -> Option<&'static str> {
        match self {
            Self::Duplicate if message == Message::Welcome => Some(
                "a participant reads a WELCOME in the first frame of a stream and in no other one: there is nothing that a \
                 second one could reach",
            ),
            Self::OtherParticipant if !message.is_up() => Some(
                "a message goes to one session, and that belongs to one lineage: what was sent to the former one reaches \
                 nobody",
            ),
            _ => None,
        }
    }
}

/// Plays what becomes of a message; the lines.
///
/// # Errors
/// It did not come about, an invariant is broken, or answer and books differ.
pub(crate) fn play(anomaly: Anomaly, message: Message) -> Result<Vec<String>, String> {
    let mut script = Script::new(message.mix(), false);
    match anomaly {
        Anomaly::ForeignLineage if message.is_of_joining() => another_log(&mut script)?,
        Anomaly::Duplicate | Anomaly::ForeignLineage | Anomaly::OtherParticipant => {
            repeated(&mut script, anomaly, message)?
        }
        _ => held_back(&mut script, anomaly, message)?,
    }
    let mut lines = script.settle()?;
    lines.push(script.end(anomaly != Anomaly::OtherParticipant)?);
    Ok(lines)
}

/// The coordinator comes back with another log: whoever joins knows a position of the former one, and is welcomed by
/// a log that it did not vote for.
fn another_log(script: &mut Script) -> Result<(), String> {
    script.execute();
    script.until(0, Node::Coordinator, "<- p2  YES")?;
    script.world.kill(Node::Coordinator, Death::Process);
    script.world.run_for(AWAY_MS);
    script.world.wipe_coordinator();
    script.world.run_for(ASKS_MS);
    Ok(())
}

fn repeated(script: &mut Script, anomaly: Anomaly, message: Message) -> Result<(), String> {
    message.begin(script)?;
    let from = if message.is_up() {
        format!("<- p{}  {}", message.who() + 1, message.begins())
    } else {
        format!("<- c   {}", message.begins())
    };
    script.until(0, message.receiver(), &from)?;
    if message == Message::Hello {
        script.until(0, message.sender(), "<- c   WELCOME")?;
    }
    if anomaly == Anomaly::OtherParticipant {
        if message == Message::Hello {
            // While the one that holds the name lives.
            script.world.hello_again(message.who(), Some(FOREIGN));
        }
        let from = script.world.trace().lines().len();
        script.world.new_disk(message.who());
        let welcome = format!("-> p{}  WELCOME", message.who() + 1);
        script.until(from, Node::Coordinator, &welcome)?;
    }
    if anomaly != Anomaly::OtherParticipant || message != Message::Hello {
        again(script, anomaly, message)?;
    }
    if anomaly == Anomaly::Duplicate {
        script.world.run_for(OVER_MS);
        again(script, anomaly, message)?;
    }
    // What the repetition causes happens while the world is whole.
    script.world.run_for(OVER_MS);
    Ok(())
}

fn again(script: &mut Script, anomaly: Anomaly, message: Message) -> Result<(), String> {
    let mut xid = script.attempt()?;
    if anomaly == Anomaly::ForeignLineage {
        xid.lineage = FOREIGN;
    }
    match message.value(xid, &script.transaction) {
        Value::Up(value) => script.world.say(message.who(), value),
        Value::Down(value) => script.world.repeat(message.who(), value),
        Value::Hello => script.world.hello_again(message.who(), None),
        Value::Welcome => return Err("nothing says WELCOME once more".to_owned()),
    }
    Ok(())
}

fn held_back(script: &mut Script, anomaly: Anomaly, message: Message) -> Result<(), String> {
    let (who, up) = (message.who(), message.is_up());
    script.world.stop_at(who, message);
    message.begin(script)?;
    if !script.world.run_until(PATIENCE_MS, World::is_stopped) {
        return Err(format!("{} is never sent", message.word()));
    }
    let from = script.world.trace().lines().len();
    let restarts = |script: &mut Script, node| {
        script.world.kill(node, Death::Process);
        script.world.restart(node);
    };
    let welcome = format!("-> p{}  WELCOME", who + 1);
    match anomaly {
        Anomaly::Lost => script.world.cut(who, up, !up, false),
        Anomaly::LateAtReceiver => restarts(script, message.receiver()),
        Anomaly::LateFromSender => restarts(script, message.sender()),
        Anomaly::Replaced => {
            script.world.cut(who, false, false, true);
            if message != Message::Hello {
                script.until(from, Node::Coordinator, "is replaced")?;
            }
            script.until(from, Node::Coordinator, &welcome)?;
        }
        Anomaly::OlderIncarnation => {
            restarts(script, message.sender());
            if !up {
                // The end of the old session is held back as well: the participant gives it up.
                script.world.cut(who, false, false, false);
            }
            script.until(from, Node::Coordinator, &welcome)?;
        }
        Anomaly::Duplicate | Anomaly::ForeignLineage | Anomaly::OtherParticipant => {}
    }
    if anomaly != Anomaly::Lost {
        script.world.let_go();
    }
    Ok(())
}
