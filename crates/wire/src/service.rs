//! The agent's side of each test.

mod accepting;
mod counted;
mod files;

use std::cell::Cell;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use kelvin_sys::ready::readable;
use kelvin_sys::usage::{Who, usage};

use crate::address::{at_port, is_same_host};
use crate::channel::Channel;
use crate::deadline::Deadline;
use crate::error::is_late;
use crate::files::Start;
use crate::interface::Interface;
use crate::limits::Limits;
use crate::message::{Answer, Ask, Cookie, Seen, Transport};
use crate::secret::nonce;
use crate::{Error, Result};

/// Messages between two checks of the clock: a check costs some tens of nanoseconds, a message microseconds.
const LOOK: u64 = 256;
/// Most bytes of a datagram over IPv4.
const LARGEST_DATAGRAM: u32 = 65_507;

/// What an agent serves with.
pub struct Means<'a> {
    pub limits: &'a Limits,
    /// Tests being served.
    pub tests: &'a AtomicU32,
    /// Starts servers of files, if it may.
    pub files: Option<&'a Start>,
}

/// Serves one test, and returns its account.
pub fn serve(ask: &Ask, channel: &mut Channel, means: &Means<'_>) -> Result<Seen> {
    let Means { limits, tests, files } = means;
    let served = Served::begin(tests);
    let before = cpu_time();
    let mut seen = match *ask {
        Ask::Echo { transport, bytes } => {
            check_size(transport, bytes, limits)?;
            let arrived = match transport {
                Transport::Tcp => echo_stream(channel, bytes as usize, limits, &served)?,
                Transport::Udp => echo_datagrams(channel, bytes as usize, limits, &served)?,
            };
            Seen { arrived, ..Seen::default() }
        }
        Ask::Streams { direction, count, ref sockets } => {
            counted::streams(channel, (direction, count), sockets, limits, &served)?
        }
        Ask::TakeDatagrams { bytes } => {
            check_size(Transport::Udp, bytes, limits)?;
            counted::datagrams(channel, bytes, limits, &served)?
        }
        Ask::Accept => Seen { arrived: accepting::accept_all(channel, limits, &served)?, ..Seen::default() },
        Ask::ServeFiles(ref design) => {
            files::serve(channel, design, *files, limits)?;
            Seen::default()
        }
        Ask::Names { .. } | Ask::ReadFromDisk | Ask::Bring { .. } | Ask::Stay => {
            return Err(Error::Refused("no server of files is running".into()));
        }
        Ask::Count | Ask::End => return Err(Error::Refused("no test is running".into())),
    };
    for (all, (now, before)) in seen.cpu_nanoseconds.iter_mut().zip(cpu_time().into_iter().zip(before)) {
        *all += now - before;
    }
    Ok(Seen { tests: served.most(), interface: Interface::with_address(own(channel)?), ..seen })
}

/// CPU time of this thread in user mode and in the kernel, in nanoseconds.
fn cpu_time() -> [u64; 2] {
    let used = usage(Who::Thread);
    [used.user, used.system]
}

fn check_size(transport: Transport, bytes: u32, limits: &Limits) -> Result<()> {
    let most = match transport {
        Transport::Tcp => limits.message,
        Transport::Udp => limits.message.min(LARGEST_DATAGRAM),
    };
    match bytes {
        0 => Err(Error::Refused("a message must have at least one byte".into())),
        bytes if bytes > most => Err(Error::Refused(format!("a message may have at most {most} bytes"))),
        _ => Ok(()),
    }
}

/// A test, counted while it lasts.
struct Served<'a> {
    now: &'a AtomicU32,
    most: Cell<u32>,
}

impl<'a> Served<'a> {
    fn begin(now: &'a AtomicU32) -> Self {
        Self { now, most: Cell::new(now.fetch_add(1, Ordering::Relaxed) + 1) }
    }

    /// Records how many there are now.
    fn look(&self) {
        self.most.set(self.most.get().max(self.now.load(Ordering::Relaxed)));
    }

    fn most(&self) -> u32 {
        self.look();
        self.most.get()
    }
}

impl Drop for Served<'_> {
    fn drop(&mut self) {
        self.now.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The address that the client sees.
fn own(channel: &Channel) -> Result<SocketAddr> {
    channel.stream().local_addr().map_err(Error::call("see the address"))
}

/// The address of the client.
fn client(channel: &Channel) -> Result<SocketAddr> {
    channel.stream().peer_addr().map_err(Error::call("see the address"))
}

/// A test's own address: that of the control connection, with a port that the system chooses.
fn beside(channel: &Channel) -> Result<SocketAddr> {
    Ok(at_port(own(channel)?, 0))
}

/// Tells the client where the test is.
fn ready(channel: &mut Channel, address: SocketAddr, limits: &Limits) -> Result<Cookie> {
    let mut cookie = Cookie::default();
    let unforeseen = nonce()?;
    cookie.copy_from_slice(&unforeseen[..size_of::<Cookie>()]);
    channel.send(&Answer::Ready { port: address.port(), cookie }, limits.handshake)?;
    Ok(cookie)
}

/// Waits for so many connections of the client; others that find the port are rejected.
fn accept(listener: &TcpListener, count: u32, channel: &mut Channel, limits: &Limits) -> Result<Vec<TcpStream>> {
    const DOING: &str = "connect for the test";
    let address = listener.local_addr().map_err(Error::call("see the address"))?;
    let cookie = ready(channel, address, limits)?;
    let client = client(channel)?;
    let deadline = Deadline::within(limits.handshake);
    let mut streams = Vec::new();
    while streams.len() < count as usize {
        if !readable(listener.as_fd(), deadline.left(DOING)?).map_err(Error::call(DOING))? {
            continue;
        }
        let (mut stream, from) = listener.accept().map_err(Error::call(DOING))?;
        let mut said = Cookie::default();
        if is_same_host(from, client)
            && deadline.fill(&mut stream, &mut said, DOING).is_ok()
            && is_equal(&said, &cookie)
        {
            set_up(&stream, limits).map_err(Error::call("set up the test"))?;
            streams.push(stream);
        }
    }
    Ok(streams)
}

fn set_up(stream: &TcpStream, limits: &Limits) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(limits.idle))?;
    stream.set_write_timeout(Some(limits.idle))
}

fn listen(channel: &Channel) -> Result<TcpListener> {
    TcpListener::bind(beside(channel)?).map_err(Error::call("listen for the test"))
}

/// Silence after which the control connection is checked.
const QUIET: Duration = Duration::from_millis(20);

/// Whether the client has ended the test.
fn said_end(channel: &mut Channel, limits: &Limits) -> Result<bool> {
    if !readable(channel.stream().as_fd(), Duration::ZERO).map_err(Error::call("wait"))? {
        return Ok(false);
    }
    match channel.receive(limits.handshake)? {
        Ask::End => Ok(true),
        _ => Err(Error::Refused("one test must end before the next one begins".into())),
    }
}

/// In constant time.
fn is_equal(one: &Cookie, other: &Cookie) -> bool {
    std::hint::black_box(one.iter().zip(other).fold(0, |differs, (one, other)| differs | (one ^ other))) == 0
}

/// Returns what arrives over a connection, until the client ends it.
fn echo_stream(channel: &mut Channel, bytes: usize, limits: &Limits, served: &Served<'_>) -> Result<u64> {
    let mut stream = accept(&listen(channel)?, 1, channel, limits)?.remove(0);
    let mut message = vec![0; bytes];
    let begun = Instant::now();
    for messages in 0.. {
        if messages % LOOK == 0 {
            served.look();
            is_in_time(begun, limits)?;
        }
        match stream.read(&mut message) {
            Ok(0) => return Ok(messages),
            Ok(count) => stream.read_exact(&mut message[count..]).map_err(broken(limits))?,
            Err(error) => return Err(broken(limits)(error)),
        }
        stream.write_all(&message).map_err(broken(limits))?;
    }
    Ok(0)
}

/// Returns datagrams from the client, until the control connection has a message, or ends.
fn echo_datagrams(channel: &mut Channel, bytes: usize, limits: &Limits, served: &Served<'_>) -> Result<u64> {
    let (socket, _) = introduced(channel, limits)?;
    echo_until_said(channel, &socket, &mut vec![0; bytes], limits, served)
}

/// A socket for datagrams of the client and of nobody else: it identifies itself by one with the cookie, which is returned. So
/// an address is known to be an authenticated client's before anything else is sent to it.
fn introduced(channel: &mut Channel, limits: &Limits) -> Result<(UdpSocket, Cookie)> {
    const DOING: &str = "send the first datagram";
    let socket = UdpSocket::bind(beside(channel)?).map_err(Error::call("open a socket for the test"))?;
    let address = socket.local_addr().map_err(Error::call("see the address"))?;
    let cookie = ready(channel, address, limits)?;
    let client = client(channel)?;
    let deadline = Deadline::within(limits.handshake);
    loop {
        socket.set_read_timeout(Some(deadline.left(DOING)?)).map_err(Error::call("set up the test"))?;
        let mut said = Cookie::default();
        match socket.recv_from(&mut said) {
            Ok((count, from)) if is_same_host(from, client) && count == said.len() && is_equal(&said, &cookie) => {
                socket.connect(from).map_err(Error::call("set up the test"))?;
                socket.send(&said).map_err(Error::call("answer the first datagram"))?;
                return Ok((socket, cookie));
            }
            Ok(_) => {}
            Err(error) if is_late(&error) => {}
            Err(error) => return Err(Error::call(DOING)(error)),
        }
    }
}

/// The echo itself. A datagram of another size is the first one again, whose answer was lost: it is answered, and not counted.
fn echo_until_said(
    channel: &mut Channel,
    socket: &UdpSocket,
    message: &mut [u8],
    limits: &Limits,
    served: &Served<'_>,
) -> Result<u64> {
    socket.set_read_timeout(Some(QUIET)).map_err(Error::call("set up the test"))?;
    let begun = Instant::now();
    let (mut messages, mut answered, mut last) = (0, 0_u64, (begun, 0));
    loop {
        match socket.recv(message) {
            Ok(count) => {
                socket.send(&message[..count]).map_err(broken(limits))?;
                messages += u64::from(count == message.len());
                answered += 1;
                if answered % LOOK == 0 {
                    served.look();
                    is_in_time(begun, limits)?;
                }
            }
            Err(error) if is_late(&error) => {
                if said_end(channel, limits)? {
                    return Ok(messages);
                }
                if last.1 != answered {
                    last = (Instant::now(), answered);
                } else if last.0.elapsed() > limits.idle {
                    return Err(late(limits));
                }
            }
            Err(error) => return Err(broken(limits)(error)),
        }
    }
}

fn is_in_time(begun: Instant, limits: &Limits) -> Result<()> {
    if begun.elapsed() <= limits.test {
        return Ok(());
    }
    Err(Error::Late { doing: "end the test", seconds: limits.test.as_secs_f64() })
}

fn late(limits: &Limits) -> Error {
    Error::Late { doing: "continue the test", seconds: limits.idle.as_secs_f64() }
}

fn broken(limits: &Limits) -> impl Fn(std::io::Error) -> Error {
    move |error| if is_late(&error) { late(limits) } else { Error::call("continue the test")(error) }
}
