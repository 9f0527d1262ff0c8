//! Each process on a host of its own, and cuts between hosts.
//!
//! A host is a network namespace with one link, whose other end is a port of a bridge; the bridge has a namespace to
//! itself, and the host of the callers is where this process runs, which [`super::private::enter`] has given a network of
//! its own. A host is unplugged by taking its port down. What one host sends to one other is lost by telling it a wrong
//! hardware address of the other, behind which the bridge has a hole: the other's packets still arrive. TCP knows nothing
//! of either; it repeats, and a connection goes on when the cut ends before anybody has given it up.
//!
//! Whether a cut met anything is what the kernel counted: the packets that came to the hole of that line, and those that
//! the unplugged host could not send.
//!
//! It cannot show packets that come late, twice or in another order, nor a loss of some of them: all are lost or none.
//! Namespaces are known by files in the directory of the run and by no name of the machine's.

use std::ffi::OsString;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::plan::{Cut, Line, Who};
use super::private;

/// The port of every server: below those that a host gives to its own connections.
const PORT: u16 = 7_400;

/// The last part of the addresses, 192.0.2.x (reserved for documentation: nobody's).
const COORDINATOR: u8 = 1;
const CALLERS: u8 = 2;
const FIRST_PARTICIPANT: u8 = 3;

/// What every namespace runs first: IPv6 would talk by itself, which would be counted.
const QUIET: &str = "\
    for off in all default; do
        off=/proc/sys/net/ipv6/conf/$off/disable_ipv6
        test ! -e $off || echo 1 > $off
    done";

/// What a host runs to have its link. `$1` is the last part of its address, `$2` the namespace of the bridge.
const JOIN: &str = "\
    ip link set dev lo up
    ip link add dev eth0 type veth peer name port$1 netns $2
    ip address add 192.0.2.$1/24 dev eth0
    ip link set dev eth0 up";

/// What the namespace of the bridge runs. A bridge that listens to who wants which multicasts talks by itself too.
const BRIDGE: &str = "\
    ip link add name bridge type bridge mcast_snooping 0
    ip link set dev bridge up";

/// What it runs when a host has its link: its port, and the hole of its line, to which the bridge sends nothing but what
/// has the hole's address.
const PLUG: &str = "\
    ip link set dev port$1 master bridge
    ip link set dev port$1 up
    ip link add dev hole$1 type veth peer name edge$1
    ip link set dev hole$1 up
    ip link set dev edge$1 master bridge
    bridge link set dev edge$1 learning off flood off mcast_flood off bcast_flood off
    bridge fdb add 02:00:00:00:00:$1 dev edge$1 master static
    ip link set dev edge$1 up";

/// A network namespace.
struct Namespace {
    /// What it is mounted on; none: that of this process.
    mounted: Option<PathBuf>,
}

impl Namespace {
    fn new(directory: &Path, name: &str) -> Result<Self> {
        let mounted = directory.join(format!("{name}.net"));
        File::create(&mounted)?;
        let made = Self {
            mounted: Some(mounted.clone()),
        };
        run(Command::new("unshare").arg(with("--net=", &mounted)).arg("true"))?;
        Ok(made)
    }

    /// What starts a program in it.
    fn inside(&self) -> Vec<OsString> {
        let enter = |mounted| vec!["nsenter".into(), with("--net=", mounted)];
        self.mounted.as_deref().map(enter).unwrap_or_default()
    }

    fn run<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> Result<Vec<u8>> {
        let mut all = self.inside();
        all.extend(words.into_iter().map(OsString::from));
        run(Command::new(&all[0]).args(&all[1..]))
    }

    fn script(&self, script: &str, arguments: &[&str]) -> Result<()> {
        let words = ["sh", "-e", "-c", script, "sh"];
        self.run(words.into_iter().chain(arguments.iter().copied()))?;
        Ok(())
    }

    /// What the kernel counted at a link, e.g. `/rx/packets`.
    fn counted(&self, link: &str, what: &str) -> Result<u64> {
        let said = self.run(["ip", "-json", "-stats", "link", "show", "dev", link])?;
        let said: Value = serde_json::from_slice(&said)?;
        let count = said.pointer(&format!("/0/stats64{what}")).and_then(Value::as_u64);
        count.with_context(|| format!("no {what} of {link} in {said}"))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if let Some(mounted) = &self.mounted {
            // At the latest it goes with the mount namespace.
            let _ = Command::new("umount").arg("--lazy").arg(mounted).status();
        }
    }
}

/// All hosts, and the bridge between them.
pub struct Hosts {
    bridge: Namespace,
    callers: Namespace,
    coordinator: Namespace,
    participants: Vec<Namespace>,
}

impl Hosts {
    /// Makes them, plugged in; the files of their namespaces are in this directory.
    ///
    /// # Errors
    /// If this process has no network of its own, or a program is missing or says no.
    pub fn join(directory: &Path, participants: usize) -> Result<Self> {
        ensure!(
            private::has_entered()?,
            "hosts are made in a network of their own only"
        );
        let named = |number| Namespace::new(directory, &format!("participant{number}"));
        let hosts = Self {
            bridge: Namespace::new(directory, "bridge")?,
            callers: Namespace { mounted: None },
            coordinator: Namespace::new(directory, "coordinator")?,
            participants: (0..participants).map(named).collect::<Result<_>>()?,
        };
        hosts.bridge.script(QUIET, &[])?;
        hosts.bridge.script(BRIDGE, &[])?;
        let bridge = directory.join("bridge.net");
        let bridge = bridge.to_str().context("a path is text")?;
        let lines = (0..participants).map(Line::Participant);
        for line in lines.chain([Line::Coordinator, Line::Callers(0)]) {
            let (host, number) = hosts.far(line);
            let number = number.to_string();
            host.script(QUIET, &[])?;
            host.script(JOIN, &[&number, bridge])?;
            hosts.bridge.script(PLUG, &[&number])?;
        }
        Ok(hosts)
    }

    /// Where a process listens.
    #[must_use]
    pub fn address(&self, who: Who) -> SocketAddr {
        let line = match who {
            Who::Coordinator => Line::Coordinator,
            Who::Participant(number) => Line::Participant(number),
        };
        (address(self.far(line).1), PORT).into()
    }

    /// What starts a process on its host.
    #[must_use]
    pub fn inside(&self, who: Who) -> Vec<OsString> {
        match who {
            Who::Coordinator => self.coordinator.inside(),
            Who::Participant(number) => self.participants[number].inside(),
        }
    }

    /// Begins a cut.
    ///
    /// # Errors
    /// If it is none between hosts, or cannot be made.
    pub fn cut(&self, line: Line, cut: Cut) -> Result<()> {
        let (sender, to) = match self.end(line, cut)? {
            End::Port(port) => return self.plug(&port, "down"),
            End::Address { of, known_to } => (known_to, address(of).to_string()),
        };
        let hole = format!("02:00:00:00:00:{}", self.far(line).1);
        let wrong = ["lladdr", &hole, "dev", "eth0", "nud", "permanent"];
        let words = ["ip", "neighbour", "replace", &to];
        sender.run(words.into_iter().chain(wrong))?;
        Ok(())
    }

    /// Ends a cut.
    ///
    /// # Errors
    /// As [`Hosts::cut`].
    pub fn mend(&self, line: Line, cut: Cut) -> Result<()> {
        match self.end(line, cut)? {
            End::Port(port) => self.plug(&port, "up"),
            End::Address { of, known_to } => {
                let to = address(of).to_string();
                known_to.run(["ip", "neighbour", "del", &to, "dev", "eth0"])?;
                Ok(())
            }
        }
    }

    /// The packets that such cuts of this line have lost so far.
    ///
    /// # Errors
    /// As [`Hosts::cut`].
    pub fn met(&self, line: Line, cut: Cut) -> Result<u64> {
        let (host, number) = self.far(line);
        match self.end(line, cut)? {
            End::Port(_) => host.counted("eth0", "/tx/dropped"),
            End::Address { .. } => self.bridge.counted(&format!("hole{number}"), "/rx/packets"),
        }
    }

    /// The packets that all cuts have lost so far.
    ///
    /// # Errors
    /// If the kernel does not say.
    pub fn lost(&self) -> Result<u64> {
        let lines = (0..self.participants.len()).map(Line::Participant);
        let lines = lines.chain([Line::Coordinator, Line::Callers(0)]);
        let mut lost = 0;
        for line in lines {
            lost += self.met(line, Cut::Unplug)?;
            lost += self
                .bridge
                .counted(&format!("hole{}", self.far(line).1), "/rx/packets")?;
        }
        Ok(lost)
    }

    fn plug(&self, port: &str, state: &str) -> Result<()> {
        self.bridge.run(["ip", "link", "set", "dev", port, state])?;
        Ok(())
    }

    /// The host at the end of a line that is not the coordinator's, and the last part of its address.
    fn far(&self, line: Line) -> (&Namespace, u8) {
        match line {
            Line::Coordinator => (&self.coordinator, COORDINATOR),
            Line::Callers(_) => (&self.callers, CALLERS),
            Line::Participant(number) => {
                let host = &self.participants[number];
                (
                    host,
                    u8::try_from(number)
                        .unwrap_or(u8::MAX)
                        .saturating_add(FIRST_PARTICIPANT),
                )
            }
        }
    }

    /// Where such a cut is made.
    fn end(&self, line: Line, cut: Cut) -> Result<End<'_>> {
        let (host, number) = self.far(line);
        match (cut, line) {
            (Cut::Unplug, _) => Ok(End::Port(format!("port{number}"))),
            (Cut::LoseUp, Line::Participant(_) | Line::Callers(_)) => Ok(End::Address {
                of: COORDINATOR,
                known_to: host,
            }),
            (Cut::LoseDown, Line::Participant(_) | Line::Callers(_)) => Ok(End::Address {
                of: number,
                known_to: &self.coordinator,
            }),
            _ => bail!("{cut:?} of {line:?} is no cut between hosts"),
        }
    }
}

/// Where a cut is made: at a port of the bridge, or at the address of one host that another knows.
enum End<'a> {
    Port(String),
    Address { of: u8, known_to: &'a Namespace },
}

fn address(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(192, 0, 2, last)
}

fn with(option: &str, path: &Path) -> OsString {
    let mut word = OsString::from(option);
    word.push(path);
    word
}

fn run(command: &mut Command) -> Result<Vec<u8>> {
    let what = format!("{command:?}");
    let output = command.output().with_context(|| {
        format!("{what} did not start; on Debian: apt-get install --yes iproute2 util-linux")
    })?;
    ensure!(
        output.status.success(),
        "{what} ended with {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(output.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binary::scratch;
    use crate::os_package::require_from;
    use crate::wait::wait_until;
    use std::io::ErrorKind;
    use std::net::UdpSocket;
    use std::time::Duration;

    /// Whether the answer came to a packet from the callers to the coordinator's host, where no such port is open.
    fn is_answered() -> bool {
        let socket = UdpSocket::bind((address(CALLERS), 0)).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        socket.connect((address(COORDINATOR), 9)).unwrap();
        socket.send(b"a word").unwrap();
        match socket.recv(&mut [0; 8]).unwrap_err().kind() {
            ErrorKind::ConnectionRefused => true,
            ErrorKind::WouldBlock => false,
            kind => panic!("{kind:?}"),
        }
    }

    /// In a network of its own, where it is started once more.
    #[tokio::test]
    async fn a_cut_loses_what_goes_its_way_and_counts_it_and_nothing_else() {
        if !private::has_entered().unwrap() {
            require_from("ip", "iproute2").unwrap();
            let mut again = private::again(true).unwrap();
            let name = "chaos::hosts::tests::a_cut_loses_what_goes_its_way_and_counts_it_and_nothing_else";
            let output = again.args(["--exact", name, "--nocapture"]).output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout).into_owned()
                + &String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && said.contains("1 passed"), "{said}");
            return;
        }
        let directory = scratch().unwrap();
        let hosts = Hosts::join(directory.path(), 12).unwrap();
        let line = Line::Callers(0);
        assert!(is_answered());
        assert_eq!(hosts.lost().unwrap(), 0);
        // The answer is lost only if the packet arrived.
        for cut in [Cut::LoseUp, Cut::LoseDown] {
            let before = hosts.met(line, cut).unwrap();
            hosts.cut(line, cut).unwrap();
            assert!(!is_answered(), "{cut:?}");
            assert_eq!(hosts.met(line, cut).unwrap(), before + 1, "{cut:?}");
            hosts.mend(line, cut).unwrap();
            assert!(is_answered(), "{cut:?}");
            assert_eq!(hosts.met(line, cut).unwrap(), before + 1, "{cut:?}");
        }
        assert_eq!(hosts.lost().unwrap(), 2);
        for line in [line, Line::Coordinator] {
            hosts.cut(line, Cut::Unplug).unwrap();
            assert!(!is_answered(), "{line:?}");
            hosts.mend(line, Cut::Unplug).unwrap();
            // A host asks again for an address that was not told only after a while.
            wait_until("an answer", Duration::from_secs(10), async || {
                ensure!(is_answered(), "there is none");
                Ok(())
            })
            .await
            .unwrap();
        }
        assert!(hosts.met(line, Cut::Unplug).unwrap() > 0);
        for (line, cut) in [(line, Cut::Reset), (Line::Coordinator, Cut::LoseUp)] {
            assert!(hosts.cut(line, cut).is_err(), "{line:?} {cut:?}");
        }
        assert_eq!(hosts.met(Line::Participant(11), Cut::Unplug).unwrap(), 0);
    }
}
