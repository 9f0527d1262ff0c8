//! A TCP proxy before the coordinator, whose connections can be reset, refused, slowed, or held in one direction.
//!
//! What is held is not lost and not passed: the peers see a connection that is open and silent, as over a network that
//! drops packets and whose end nobody was told of. When the hold ends, what was held goes on, as TCP would repeat it;
//! [`Cut::Lose`] resets instead. It works on bytes and does not know what they mean.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::{AbortHandle, JoinSet};

use super::plan::Cut;

/// The most connections through one proxy at a time; one more is reset.
pub const MAX_CONNECTIONS: usize = 256;

/// How much is taken from a socket at a time, in bytes.
const CHUNK_BYTES: usize = 16 * 1_024;

/// How long each chunk waits on a slow line.
const SLOW: Duration = Duration::from_millis(15);

/// What becomes of the bytes of one direction.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Flow {
    #[default]
    Pass,
    Slow,
    Hold,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct State {
    up: Flow,
    down: Flow,
    refuse: bool,
    /// Rises; a connection ends when it is not what it was at its beginning.
    resets: u64,
}

/// How much went through, for the report.
#[derive(Default)]
struct Counts {
    connections: AtomicU64,
    bytes: AtomicU64,
    met: AtomicU64,
}

/// A proxy before one address. Dropping it ends its connections.
pub struct Proxy {
    listen: SocketAddr,
    state: watch::Sender<State>,
    counts: Arc<Counts>,
    accepting: AbortHandle,
}

impl Proxy {
    /// A proxy on a free port of the loopback address, before `to`.
    ///
    /// # Errors
    /// If no port is free.
    pub async fn start(to: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .context("no free port for a proxy")?;
        let listen = listener.local_addr()?;
        let (state, seen) = watch::channel(State::default());
        let counts = Arc::<Counts>::default();
        let accepting = tokio::spawn(accept(listener, to, seen, Arc::clone(&counts))).abort_handle();
        Ok(Self {
            listen,
            state,
            counts,
            accepting,
        })
    }

    /// Its address.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.listen)
    }

    /// Begins a cut.
    pub fn cut(&self, cut: Cut) {
        self.state.send_modify(|state| match cut {
            Cut::Reset => state.resets += 1,
            Cut::Refuse => {
                state.resets += 1;
                state.refuse = true;
            }
            Cut::HoldUp => state.up = Flow::Hold,
            Cut::HoldDown => state.down = Flow::Hold,
            Cut::HoldBoth | Cut::Lose => (state.up, state.down) = (Flow::Hold, Flow::Hold),
            Cut::Slow => (state.up, state.down) = (Flow::Slow, Flow::Slow),
            // It passes bytes of connections and has no part in a network's packets; nobody asks it to.
            Cut::Unplug | Cut::LoseUp | Cut::LoseDown => {}
        });
    }

    /// Ends a cut.
    pub fn mend(&self, cut: Cut) {
        self.state.send_modify(|state| {
            let resets = state.resets + u64::from(cut == Cut::Lose);
            *state = State {
                resets,
                ..State::default()
            };
        });
    }

    /// How often a cut met something: a connection that it reset or refused, bytes that it held or slowed.
    #[must_use]
    pub fn met(&self) -> u64 {
        self.counts.met.load(Ordering::Relaxed)
    }

    /// The connections that were made, and the bytes that went through.
    #[must_use]
    pub fn passed(&self) -> (u64, u64) {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (load(&self.counts.connections), load(&self.counts.bytes))
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, to: SocketAddr, state: watch::Receiver<State>, counts: Arc<Counts>) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            taken = listener.accept() => {
                // An error is of the one connection that was not taken.
                let Ok((socket, _)) = taken else { continue };
                if state.borrow().refuse {
                    counts.met.fetch_add(1, Ordering::Relaxed);
                    reset(&socket);
                    continue;
                }
                let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
                    reset(&socket);
                    continue;
                };
                counts.connections.fetch_add(1, Ordering::Relaxed);
                let (state, counts) = (state.clone(), Arc::clone(&counts));
                connections.spawn(async move {
                    carry(socket, to, state, counts).await;
                    drop(place);
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// The socket says RST, not FIN, when it is dropped.
fn reset(socket: &TcpStream) {
    // A socket whose peer is gone already needs none.
    let _ = socket.set_zero_linger();
}

async fn carry(mut inner: TcpStream, to: SocketAddr, mut state: watch::Receiver<State>, counts: Arc<Counts>) {
    let resets = state.borrow().resets;
    let Ok(mut outer) = TcpStream::connect(to).await else {
        return reset(&inner);
    };
    for socket in [&inner, &outer] {
        // Only delays come of it.
        let _ = socket.set_nodelay(true);
    }
    let ended_well = {
        let (from_inner, to_inner) = inner.split();
        let (from_outer, to_outer) = outer.split();
        let up = pump(from_inner, to_outer, state.clone(), |state| state.up, &counts);
        let down = pump(from_outer, to_inner, state.clone(), |state| state.down, &counts);
        let both = async { tokio::try_join!(up, down).is_ok() };
        // The sender lives as long as the proxy, whose end ends this task too.
        let was_reset = async { state.wait_for(|state| state.resets != resets).await.is_err() };
        tokio::select! {
            // A reset before the end of a hold: what was held is lost with it.
            biased;
            _ = was_reset => {
                counts.met.fetch_add(1, Ordering::Relaxed);
                false
            }
            ended_well = both => ended_well,
        }
    };
    if !ended_well {
        reset(&inner);
        reset(&outer);
    }
}

/// A connection of which one direction failed.
struct Broken;

/// Carries one direction to its end.
async fn pump(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    mut state: watch::Receiver<State>,
    flow: impl Fn(&State) -> Flow,
    counts: &Counts,
) -> Result<(), Broken> {
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let read = from.read(&mut chunk).await;
        if flow(&state.borrow()) != Flow::Pass {
            counts.met.fetch_add(1, Ordering::Relaxed);
        }
        // Nobody is told of an end either while the direction is held.
        let now = *state
            .wait_for(|state| flow(state) != Flow::Hold)
            .await
            .map_err(|_| Broken)?;
        match read {
            Ok(0) => return to.shutdown().await.map_err(|_| Broken),
            Ok(read) => {
                if flow(&now) == Flow::Slow {
                    tokio::time::sleep(SLOW).await;
                }
                to.write_all(&chunk[..read]).await.map_err(|_| Broken)?;
                counts.bytes.fetch_add(read as u64, Ordering::Relaxed);
            }
            Err(_) => return Err(Broken),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    const SOON: Duration = Duration::from_secs(5);

    /// Both ends of a connection through a proxy.
    async fn through() -> (Proxy, TcpListener, TcpStream, TcpStream) {
        let far = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let proxy = Proxy::start(far.local_addr().unwrap()).await.unwrap();
        let near = TcpStream::connect(proxy.listen).await.unwrap();
        let (there, _) = far.accept().await.unwrap();
        (proxy, far, near, there)
    }

    async fn passes(from: &mut TcpStream, to: &mut TcpStream) {
        from.write_all(b"a word").await.unwrap();
        let mut read = [0; 6];
        tokio::time::timeout(SOON, to.read_exact(&mut read))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(&read, b"a word");
    }

    async fn is_reset(socket: &mut TcpStream) -> bool {
        let read = tokio::time::timeout(SOON, socket.read(&mut [0; 8]))
            .await
            .unwrap();
        read.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset)
    }

    #[tokio::test]
    async fn bytes_pass_both_ways_and_so_does_the_end() {
        let (proxy, _far, mut near, mut there) = through().await;
        passes(&mut near, &mut there).await;
        passes(&mut there, &mut near).await;
        near.shutdown().await.unwrap();
        assert_eq!(there.read(&mut [0; 8]).await.unwrap(), 0);
        assert_eq!((proxy.passed(), proxy.met()), ((1, 12), 0));
    }

    #[tokio::test]
    async fn a_held_direction_is_silent_the_other_is_not_and_what_was_held_comes_afterwards() {
        let (proxy, _far, mut near, mut there) = through().await;
        proxy.cut(Cut::HoldUp);
        near.write_all(b"held").await.unwrap();
        passes(&mut there, &mut near).await;
        let mut read = [0; 4];
        let early = tokio::time::timeout(Duration::from_millis(50), there.read_exact(&mut read)).await;
        assert!(early.is_err(), "it passed");
        assert_eq!(proxy.met(), 1);
        proxy.mend(Cut::HoldUp);
        tokio::time::timeout(SOON, there.read_exact(&mut read))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(&read, b"held");
    }

    #[tokio::test]
    async fn an_end_is_not_told_through_a_held_direction() {
        let (proxy, _far, near, mut there) = through().await;
        proxy.cut(Cut::HoldBoth);
        drop(near);
        let told = tokio::time::timeout(Duration::from_millis(50), there.read(&mut [0; 8])).await;
        assert!(told.is_err(), "the end was told");
        proxy.mend(Cut::HoldBoth);
        assert_eq!(
            tokio::time::timeout(SOON, there.read(&mut [0; 8]))
                .await
                .unwrap()
                .unwrap(),
            0
        );
    }

    #[tokio::test]
    async fn a_reset_reaches_both_ends_and_a_refusal_new_connections_too() {
        let (proxy, far, mut near, mut there) = through().await;
        passes(&mut near, &mut there).await;
        proxy.cut(Cut::Refuse);
        assert!(is_reset(&mut near).await && is_reset(&mut there).await);
        assert_eq!(proxy.met(), 1);
        let mut refused = TcpStream::connect(proxy.listen).await.unwrap();
        assert!(is_reset(&mut refused).await);
        assert_eq!(proxy.met(), 2);
        proxy.mend(Cut::Refuse);
        let mut again = TcpStream::connect(proxy.listen).await.unwrap();
        let (mut there, _) = far.accept().await.unwrap();
        passes(&mut again, &mut there).await;
    }

    #[tokio::test]
    async fn what_a_lossy_cut_held_never_comes() {
        let (proxy, _far, mut near, mut there) = through().await;
        proxy.cut(Cut::Lose);
        near.write_all(b"lost").await.unwrap();
        proxy.mend(Cut::Lose);
        assert!(is_reset(&mut there).await);
    }

    #[tokio::test]
    async fn a_slow_line_is_slow() {
        let (proxy, _far, mut near, mut there) = through().await;
        proxy.cut(Cut::Slow);
        let began = Instant::now();
        passes(&mut near, &mut there).await;
        assert!(began.elapsed() >= SLOW);
    }
}
