//! The faults of a plan, each carried out and ended.

use std::time::Duration;

use anyhow::{Result, bail};
use tokio::time::Instant;

use super::load::Counts;
use super::nodes::{Node, Nodes};
use super::plan::{Fault, Injected};

/// How long a process that ended because its disk is full stays down, as under any supervisor.
const STARVED_PAUSE: Duration = Duration::from_millis(100);

/// Injects one fault and ends it; says whether it met anything: a process that ran and callers that waited meanwhile, a
/// connection in use, packets between hosts, a write that found no room, somebody who looked at the clock.
///
/// # Errors
/// If it cannot be injected or ended.
pub(super) async fn inject(nodes: &Nodes, counts: &Counts, fault: Fault) -> Result<bool> {
    let over = counts.over();
    let lasts = Duration::from_millis(fault.for_ms);
    match fault.what {
        Injected::Kill { who } => {
            let node = nodes.node(who);
            let mut life = node.life().await;
            let ran = !life.server.process().has_ended()?;
            life.server.kill()?;
            node.bury(&mut life, ran)?;
            tokio::time::sleep(lasts).await;
            node.begin(&mut life).await?;
            Ok(ran && counts.under_way_since(over) > 0)
        }
        Injected::Pause { who } => {
            let mut life = nodes.node(who).life().await;
            let ran = !life.server.process().has_ended()?;
            if ran {
                life.server.process().pause()?;
                tokio::time::sleep(lasts).await;
                life.server.process().go_on()?;
            }
            Ok(ran && counts.under_way_since(over) > 0)
        }
        Injected::Cut { line, cut } => {
            let before = nodes.lines.met(line, cut)?;
            nodes.lines.cut(line, cut)?;
            tokio::time::sleep(lasts).await;
            nodes.lines.mend(line, cut)?;
            Ok(nodes.lines.met(line, cut)? > before)
        }
        Injected::DiskFull { who } => starve(nodes.node(who), lasts).await,
        Injected::Clock { who, step_ms } => {
            let clock = &nodes.node(who).clock;
            let before = clock.told()?;
            clock.step(step_ms)?;
            tokio::time::sleep(lasts).await;
            clock.step(0)?;
            Ok(clock.told()? > before)
        }
    }
}

/// Fills the disk of a process. What ends is started again while it is full, which may fail, and once more afterwards,
/// which may not. Says whether any ended.
async fn starve(node: &Node, lasts: Duration) -> Result<bool> {
    let Some(disk) = &node.disk else {
        bail!("{} has no disk of its own", node.name)
    };
    let mut life = node.life().await;
    let before = life.starved_ends;
    let until = Instant::now() + lasts;
    life.starved = true;
    disk.fill()?;
    while Instant::now() < until {
        if life.server.process().has_ended()? {
            node.bury(&mut life, false)?;
            life.starved = true;
            life.server.respawn()?;
        }
        tokio::time::sleep(STARVED_PAUSE).await;
    }
    disk.free()?;
    // One that was starting may have met the full disk, or have come up.
    if !life.server.process().has_ended()? && life.server.wait_ready().await.is_ok() {
        life.starved = false;
        return Ok(life.starved_ends > before);
    }
    node.bury(&mut life, false)?;
    node.begin(&mut life).await?;
    Ok(life.starved_ends > before)
}
