//! What is injected, when and where: a plan that follows from the seed, the duration and the chosen kinds alone.
//!
//! Faults of different processes overlap; those of one process do not, so that each of them meets a process that runs.
//! Each chosen kind comes once, in a shuffled order, before any comes again.

use serde::Serialize;

use super::dice::Dice;

/// The mean time between the beginnings of two faults, in milliseconds.
pub const MEAN_GAP_MS: u64 = 500;

/// The longest pause of a process: longer than the keep-alive of a session (2 s and 3 s).
pub const MAX_PAUSE_MS: u64 = 6_000;

/// The longest cut: longer than the keep-alive of a session and of a caller's connection is apart from its time-out.
pub const MAX_CUT_MS: u64 = 7_000;

/// How long a session waits without a word before it is given up: its interval and its time-out.
pub const KEEP_ALIVE_MS: u64 = 5_000;

/// The longest of the short cuts, over whose end TCP brings a connection before anybody gives it up.
pub const SHORT_CUT_MS: u64 = 1_500;

/// How many cuts between hosts come before chance decides: each for long and for short.
const FIRST_HOST_CUTS: usize = 2 * Cut::OF_HOSTS.len();

/// How long a process that was killed, or whose disk was full, is given before its next fault, in milliseconds.
const RESTART_MS: u64 = 2_000;

/// A kind of fault.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// kill -9 of a coordinator.
    KillCoordinator,
    /// kill -9 of a participant.
    KillParticipant,
    /// SIGSTOP, then SIGCONT.
    Pause,
    /// A connection is cut, half-open, slow or refused; or a host is cut off.
    Cut,
    /// The file system under a data directory is full.
    DiskFull,
    /// The wall clock of a process steps.
    Clock,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::KillCoordinator,
        Self::KillParticipant,
        Self::Pause,
        Self::Cut,
        Self::DiskFull,
        Self::Clock,
    ];

    /// Its name in reports.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::KillCoordinator => "kill coordinator",
            Self::KillParticipant => "kill participant",
            Self::Pause => "pause",
            Self::Cut => "cut",
            Self::DiskFull => "disk full",
            Self::Clock => "clock step",
        }
    }
}

/// A process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Who {
    /// The coordinator.
    Coordinator,
    /// The participant of this number, from 0.
    Participant(usize),
}

/// A connection to the coordinator.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// That of the participant of this number.
    Participant(usize),
    /// That of the callers with this number.
    Callers(usize),
    /// All of them at once: that of the coordinator's host.
    Coordinator,
}

/// What is done to a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cut {
    /// Every connection is reset; new ones are taken.
    Reset,
    /// Every connection is reset, new ones too.
    Refuse,
    /// What goes to the coordinator is held: half-open.
    HoldUp,
    /// What comes from the coordinator is held: half-open.
    HoldDown,
    /// Both are held.
    HoldBoth,
    /// As [`Cut::HoldBoth`]; at its end the connections are reset, and what was held is lost.
    Lose,
    /// Both ways are slow.
    Slow,
    /// The host at the far end, or the coordinator's, is cut off from all others.
    Unplug,
    /// What goes to the coordinator's host is lost; what comes from there arrives.
    LoseUp,
    /// What comes from the coordinator's host is lost; what goes there arrives.
    LoseDown,
}

impl Cut {
    /// Those between hosts.
    pub const OF_HOSTS: [Self; 3] = [Self::Unplug, Self::LoseUp, Self::LoseDown];

    const OF_PROXIES: [Self; 7] = [
        Self::Reset,
        Self::Refuse,
        Self::HoldUp,
        Self::HoldDown,
        Self::HoldBoth,
        Self::Lose,
        Self::Slow,
    ];
}

/// What is injected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Injected {
    /// kill -9; started again afterwards.
    Kill {
        /// Whom.
        who: Who,
    },
    /// SIGSTOP; SIGCONT afterwards.
    Pause {
        /// Whom.
        who: Who,
    },
    /// A connection.
    Cut {
        /// Which.
        line: Line,
        /// How.
        cut: Cut,
    },
    /// A full disk; room again afterwards.
    DiskFull {
        /// Whose.
        who: Who,
    },
    /// A step of the wall clock; back afterwards.
    Clock {
        /// Whose.
        who: Who,
        /// By how much, in milliseconds.
        step_ms: i64,
    },
}

impl Injected {
    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Kill {
                who: Who::Coordinator,
            } => Kind::KillCoordinator,
            Self::Kill {
                who: Who::Participant(_),
            } => Kind::KillParticipant,
            Self::Pause { .. } => Kind::Pause,
            Self::Cut { .. } => Kind::Cut,
            Self::DiskFull { .. } => Kind::DiskFull,
            Self::Clock { .. } => Kind::Clock,
        }
    }
}

/// One fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Fault {
    /// When it begins, in milliseconds since the load began.
    pub at_ms: u64,
    /// How long it lasts, in milliseconds.
    pub for_ms: u64,
    /// What it is.
    pub what: Injected,
}

/// What a plan is made for.
#[derive(Clone, Debug)]
pub struct Scope {
    /// The seed.
    pub seed: u64,
    /// How long the load lasts, in milliseconds.
    pub duration_ms: u64,
    /// The number of participants.
    pub participants: usize,
    /// The number of lines of callers.
    pub caller_lines: usize,
    /// Whether each process is a host of its own, and cuts are made between hosts.
    pub as_hosts: bool,
    /// The kinds of faults, without a double.
    pub kinds: Vec<Kind>,
}

/// The plan, by the time of beginning.
#[must_use]
pub fn plan(scope: &Scope) -> Vec<Fault> {
    let mut dice = Dice::new(scope.seed, 0);
    let kinds = firsts(&mut dice, scope);
    // Until when each process, and each connection, has a fault.
    let mut busy: std::collections::BTreeMap<String, u64> = std::collections::BTreeMap::new();
    let mut faults = Vec::new();
    let mut host_cuts = 0;
    let mut at_ms = 0;
    loop {
        at_ms += dice.within(MEAN_GAP_MS / 4, 2 * MEAN_GAP_MS - MEAN_GAP_MS / 4);
        if at_ms >= scope.duration_ms || kinds.is_empty() {
            return faults;
        }
        let kind = match kinds.get(faults.len()) {
            Some(kind) => *kind,
            None => scope.kinds[dice.below(scope.kinds.len())],
        };
        let (what, for_ms) = if kind == Kind::Cut && scope.as_hosts {
            cut_host(&mut dice, scope, host_cuts)
        } else {
            roll(&mut dice, kind, scope)
        };
        let place = match what {
            Injected::Kill { who } | Injected::Pause { who } | Injected::DiskFull { who } => {
                format!("{who:?}")
            }
            Injected::Cut { line, .. } => format!("{line:?}"),
            Injected::Clock { who, .. } => format!("clock {who:?}"),
        };
        let free = busy.entry(place).or_default();
        let begins = at_ms.max(*free);
        if begins >= scope.duration_ms {
            // The first of each kind is what its name was chosen for.
            if faults.len() < kinds.len() {
                at_ms = 0;
            }
            continue;
        }
        let for_ms = for_ms.min(scope.duration_ms - begins);
        *free = begins + for_ms + RESTART_MS;
        host_cuts += usize::from(kind == Kind::Cut);
        faults.push(Fault {
            at_ms: begins,
            for_ms,
            what,
        });
    }
}

fn roll(dice: &mut Dice, kind: Kind, scope: &Scope) -> (Injected, u64) {
    let participant = |dice: &mut Dice| Who::Participant(dice.below(scope.participants));
    let any = |dice: &mut Dice| {
        if dice.chance(40) {
            Who::Coordinator
        } else {
            Who::Participant(dice.below(scope.participants))
        }
    };
    match kind {
        Kind::KillCoordinator => {
            let who = Who::Coordinator;
            (Injected::Kill { who }, dice.within(0, 1_500))
        }
        Kind::KillParticipant => {
            let who = participant(dice);
            (Injected::Kill { who }, dice.within(0, 2_500))
        }
        Kind::Pause => {
            let who = any(dice);
            // Mostly shorter than anybody's keep-alive, sometimes longer.
            let longest = if dice.chance(25) { MAX_PAUSE_MS } else { 1_000 };
            (Injected::Pause { who }, dice.within(20, longest))
        }
        Kind::Cut => {
            let line = if dice.chance(30) {
                Line::Callers(dice.below(scope.caller_lines))
            } else {
                Line::Participant(dice.below(scope.participants))
            };
            let cut = Cut::OF_PROXIES[dice.below(Cut::OF_PROXIES.len())];
            let longest = if dice.chance(25) { MAX_CUT_MS } else { 1_500 };
            (Injected::Cut { line, cut }, dice.within(20, longest))
        }
        Kind::DiskFull => {
            let who = any(dice);
            (Injected::DiskFull { who }, dice.within(300, 2_500))
        }
        Kind::Clock => {
            let who = any(dice);
            // A step of an hour back makes every caller's time lie ahead (R5): rarely, or nothing would run.
            let far = if dice.chance(20) { 3_600_000 } else { 45_000 };
            let size = i64::try_from(dice.within(500, far)).unwrap_or(i64::MAX);
            let step_ms = if dice.chance(50) { size } else { -size };
            (Injected::Clock { who, step_ms }, dice.within(500, 3_000))
        }
    }
}

/// What comes first, shuffled: each kind once, and each cut between hosts once long and once short.
fn firsts(dice: &mut Dice, scope: &Scope) -> Vec<Kind> {
    let mut kinds = scope.kinds.clone();
    if scope.as_hosts && kinds.contains(&Kind::Cut) {
        kinds.extend([Kind::Cut; FIRST_HOST_CUTS - 1]);
    }
    for at in (1..kinds.len()).rev() {
        kinds.swap(at, dice.below(at + 1));
    }
    kinds
}

/// A cut between hosts: each of them once longer than the keep-alive and then once short, each time of another line; from
/// then on as the dice fall.
fn cut_host(dice: &mut Dice, scope: &Scope, before: usize) -> (Injected, u64) {
    let cuts = Cut::OF_HOSTS;
    let is_first = before < FIRST_HOST_CUTS;
    let (cut, is_long) = if is_first {
        (cuts[before % cuts.len()], before < cuts.len())
    } else {
        (cuts[dice.below(cuts.len())], dice.chance(25))
    };
    let line = match dice.below(10) {
        _ if is_first => match before % (scope.participants + 1) {
            0 => Line::Callers(dice.below(scope.caller_lines)),
            number => Line::Participant(number - 1),
        },
        0..3 => Line::Callers(dice.below(scope.caller_lines)),
        3 | 4 if cut == Cut::Unplug => Line::Coordinator,
        _ => Line::Participant(dice.below(scope.participants)),
    };
    let for_ms = if is_long {
        dice.within(KEEP_ALIVE_MS + 500, MAX_CUT_MS)
    } else {
        dice.within(20, SHORT_CUT_MS)
    };
    (Injected::Cut { line, cut }, for_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(seed: u64, kinds: &[Kind]) -> Scope {
        Scope {
            seed,
            duration_ms: 20_000,
            participants: 3,
            caller_lines: 2,
            as_hosts: false,
            kinds: kinds.to_vec(),
        }
    }

    #[test]
    fn a_seed_has_one_plan_and_another_seed_another() {
        let of = |seed| plan(&scope(seed, &Kind::ALL));
        assert_eq!(of(7), of(7));
        assert_ne!(of(7), of(8));
    }

    #[test]
    fn every_chosen_kind_comes_and_no_other() {
        for seed in 0..200 {
            for kinds in [&Kind::ALL[..], &[Kind::Pause], &[Kind::Cut, Kind::DiskFull], &[]] {
                let mut seen: Vec<Kind> = plan(&scope(seed, kinds))
                    .iter()
                    .map(|fault| fault.what.kind())
                    .collect();
                seen.sort_unstable();
                seen.dedup();
                let mut chosen = kinds.to_vec();
                chosen.sort_unstable();
                assert_eq!(seen, chosen, "seed {seed}");
            }
        }
    }

    #[test]
    fn hosts_are_cut_every_way_for_long_and_for_short_and_nothing_else_cuts_them() {
        for seed in 0..200 {
            let scope = Scope {
                as_hosts: true,
                caller_lines: 1,
                ..scope(seed, &[Kind::KillCoordinator, Kind::Cut])
            };
            let mut seen = std::collections::BTreeSet::new();
            for fault in plan(&scope) {
                if let Injected::Cut { line, cut } = fault.what {
                    assert!(Cut::OF_HOSTS.contains(&cut), "{fault:?}");
                    assert!(line != Line::Coordinator || cut == Cut::Unplug, "{fault:?}");
                    seen.insert((cut, fault.for_ms > KEEP_ALIVE_MS));
                    assert!(
                        fault.for_ms <= SHORT_CUT_MS
                            || fault.for_ms > KEEP_ALIVE_MS
                            || fault.at_ms + fault.for_ms == scope.duration_ms
                    );
                }
            }
            assert_eq!(seen.len(), 2 * Cut::OF_HOSTS.len(), "seed {seed}: {seen:?}");
        }
    }

    #[test]
    fn faults_of_one_process_do_not_overlap_and_none_outlasts_the_load() {
        for seed in 0..50 {
            let scope = scope(seed, &Kind::ALL);
            let mut until: std::collections::BTreeMap<Who, u64> = std::collections::BTreeMap::new();
            let faults = plan(&scope);
            for fault in &faults {
                assert!(fault.at_ms + fault.for_ms <= scope.duration_ms, "{fault:?}");
            }
            for fault in faults {
                let (Injected::Kill { who } | Injected::Pause { who } | Injected::DiskFull { who }) =
                    fault.what
                else {
                    continue;
                };
                let before = until.insert(who, fault.at_ms + fault.for_ms).unwrap_or(0);
                assert!(
                    fault.at_ms >= before,
                    "seed {seed}: {fault:?} begins before {before}"
                );
            }
        }
    }
}
