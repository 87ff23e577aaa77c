//! The client: finds an agent, and has it serve tests.

mod files;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use kelvin_sys::net;

use crate::address::{at_port, is_loopback};
use crate::deadline::{Connection, Deadline};
use crate::error::is_late;
use crate::message::{Answer, Ask, Cookie, Counted, Direction, PROTOCOL, Seen, Transport};
use crate::noise::Handshake;
use crate::secret::{Secret, nonce};
use crate::sockets::Sockets;
use crate::{Error, Result, channel::Channel};

pub use files::FileServer;

/// Time to connect and to shake hands.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Attempts to connect while connections end before the handshake, and the time between two of them, up to twice that: they
/// must not be in step with other load on the agent.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(50);
/// Time for an answer: longer than the agent's own patience, so that its reason arrives.
const ANSWER: Duration = Duration::from_secs(40);
/// Time limit of a call on a test's socket: an agent that is gone must not block the measurement.
const SILENCE: Duration = Duration::from_secs(5);
/// Time for the answer to the first datagram of a test, which may be lost; and how often it is sent.
const FIRST_DATAGRAM: Duration = Duration::from_millis(300);
const FIRST_DATAGRAMS: u32 = 10;

/// A connection to an agent.
#[derive(Debug)]
pub struct Client {
    channel: Channel,
    agent: SocketAddr,
    own: SocketAddr,
    /// The agent's last counts of the running test.
    counted: Counted,
}

impl Client {
    /// Connects to the first of these addresses that answers, and shakes hands. An agent with too many unauthenticated
    /// connections may have no place for another one, and closes it: so it is retried for a while.
    ///
    /// # Errors
    /// No answer, or an agent of another version or secret, or one that is busy.
    pub fn connect(addresses: &[SocketAddr], secret: &Secret) -> Result<Self> {
        for _ in 0..TRIES {
            match Self::connect_once(addresses, secret) {
                Err(Error::Gone) => std::thread::sleep(PAUSE + PAUSE * u32::from(nonce()?[0]) / 256),
                outcome => return outcome,
            }
        }
        Err(Error::TurnedAway { times: TRIES })
    }

    fn connect_once(addresses: &[SocketAddr], secret: &Secret) -> Result<Self> {
        let mut last = None;
        for &agent in addresses {
            match TcpStream::connect_timeout(&agent, HANDSHAKE) {
                Ok(stream) => {
                    stream.set_nodelay(true).map_err(Error::call("set up the connection"))?;
                    let own = stream.local_addr().map_err(Error::call("see the address"))?;
                    // Any agent there has one: without it nobody would know who answers.
                    if !secret.is_some() && !is_loopback(agent) {
                        return Err(Error::SecretNeeded { role: PROTOCOL.listener.role });
                    }
                    let channel = shake(stream, secret, HANDSHAKE)?;
                    return Ok(Self { channel, agent, own, counted: Counted::default() });
                }
                Err(error) => last = Some(error),
            }
        }
        let none = || std::io::Error::from(std::io::ErrorKind::AddrNotAvailable);
        Err(Error::Call { doing: "connect to the agent", source: last.unwrap_or_else(none) })
    }

    /// The address of the agent.
    pub fn agent(&self) -> SocketAddr {
        self.agent
    }

    /// The local address.
    pub fn own(&self) -> SocketAddr {
        self.own
    }

    /// Has every message of so many bytes returned over a TCP connection, with `TCP_NODELAY` on both sides.
    ///
    /// # Errors
    /// An agent that refuses, or cannot be reached at the port that it names.
    pub fn echo_tcp(&mut self, bytes: u32) -> Result<Test<'_, TcpStream>> {
        let (address, cookie) = self.ask(&Ask::Echo { transport: Transport::Tcp, bytes })?;
        Ok(Test { socket: stream(address, &cookie, &Sockets::default())?, client: self })
    }

    /// Has every datagram of so many bytes returned.
    ///
    /// # Errors
    /// An agent that refuses, or a path that drops all datagrams.
    pub fn echo_udp(&mut self, bytes: u32) -> Result<Test<'_, UdpSocket>> {
        let socket = self.introduced(&Ask::Echo { transport: Transport::Udp, bytes })?;
        Ok(Test { client: self, socket })
    }

    /// Has the agent receive datagrams of so many bytes and count them; each must begin with its number, from 1 on, see
    /// [`crate::numbered`].
    ///
    /// # Errors
    /// An agent that refuses, or a path that drops all datagrams.
    pub fn datagrams(&mut self, bytes: u32) -> Result<Test<'_, Datagrams>> {
        let socket = Datagrams(self.introduced(&Ask::TakeDatagrams { bytes })?);
        Ok(Test { client: self, socket })
    }

    /// A socket for the datagrams of a test, registered with the agent.
    fn introduced(&mut self, ask: &Ask) -> Result<UdpSocket> {
        let (address, cookie) = self.ask(ask)?;
        let socket = UdpSocket::bind(at_port(self.own, 0)).map_err(Error::call("open a socket for the test"))?;
        socket.connect(address).map_err(Error::call("open a socket for the test"))?;
        introduce(&socket, &cookie)?;
        Ok(socket)
    }

    /// Opens so many connections for bytes in one direction, with the requested socket options on both sides. The agent
    /// receives all that arrives, or sends until it is told to stop, and counts.
    ///
    /// # Errors
    /// An agent that refuses, or cannot be reached at the port that it names; socket options that this kernel refuses.
    pub fn streams(&mut self, direction: Direction, count: u32, sockets: &Sockets) -> Result<Test<'_, Vec<TcpStream>>> {
        let (address, cookie) = self.ask(&Ask::Streams { direction, count, sockets: sockets.clone() })?;
        let open = |_| {
            let stream = stream(address, &cookie, sockets)?;
            stream.set_nodelay(false).map_err(Error::call("set up the test"))?;
            Ok(stream)
        };
        let socket = (0..count).map(open).collect::<Result<_>>()?;
        Ok(Test { client: self, socket })
    }

    /// Has the agent accept connections one after the other, answer on each, and reset those that were closed.
    ///
    /// # Errors
    /// An agent that refuses.
    pub fn accepting(&mut self) -> Result<Test<'_, Accepting>> {
        let (address, cookie) = self.ask(&Ask::Accept)?;
        Ok(Test { client: self, socket: Accepting { address, cookie } })
    }

    /// Requests a test, and returns where it is.
    fn ask(&mut self, ask: &Ask) -> Result<(SocketAddr, Cookie)> {
        self.channel.send(ask, ANSWER)?;
        self.counted = Counted::default();
        match self.channel.receive(ANSWER)? {
            Answer::Ready { port, cookie } => Ok((at_port(self.agent, port), cookie)),
            Answer::Failed { why } => Err(Error::Refused(why)),
            _ => Err(unasked()),
        }
    }

    fn outcome(&mut self) -> Result<Seen> {
        match self.channel.receive(ANSWER)? {
            Answer::Done(seen) => Ok(seen),
            Answer::Failed { why } => Err(Error::Refused(why)),
            _ => Err(unasked()),
        }
    }

    fn end(&mut self) -> Result<Seen> {
        self.channel.send(&Ask::End, ANSWER)?;
        self.outcome()
    }
}

/// Shakes hands with an agent.
///
/// # Errors
/// Another side that is no agent, has another version or secret, or is busy.
pub fn shake<S: Connection>(mut stream: S, secret: &Secret, within: Duration) -> Result<Channel<S>> {
    let handshake = Handshake { protocol: &PROTOCOL, secret, deadline: Deadline::within(within) };
    let halves = handshake.call(&mut stream)?;
    Ok(Channel::new(stream, halves))
}

fn unasked() -> Error {
    Error::nonsense(PROTOCOL.listener.program, "its answer does not match the request")
}

/// A connection of a test.
fn stream(address: SocketAddr, cookie: &Cookie, sockets: &Sockets) -> Result<TcpStream> {
    let refused = |error| std::io::Error::other(format!("this host's kernel does not grant{sockets}: {error}"));
    let prepare = |socket: &TcpStream| sockets.prepare(socket).map_err(refused);
    let stream = net::connect_prepared(address, HANDSHAKE, prepare);
    let mut stream = stream.map_err(Error::call("connect for the test"))?;
    stream.set_nodelay(true).map_err(Error::call("set up the test"))?;
    Deadline::within(HANDSHAKE).drain(&mut stream, cookie, "read the cookie")?;
    stream.wait_at_most(SILENCE).map_err(Error::call("set up the test"))?;
    Ok(stream)
}

/// Sends the cookie until it comes back.
fn introduce(socket: &UdpSocket, cookie: &Cookie) -> Result<()> {
    let failed = || Error::call("set up the test");
    socket.set_read_timeout(Some(FIRST_DATAGRAM)).map_err(failed())?;
    for _ in 0..FIRST_DATAGRAMS {
        socket.send(cookie).map_err(failed())?;
        let mut answer = Cookie::default();
        if matches!(socket.recv(&mut answer), Ok(count) if count == cookie.len() && answer == *cookie) {
            return socket.set_read_timeout(Some(SILENCE)).map_err(failed());
        }
    }
    let seconds = (FIRST_DATAGRAM * FIRST_DATAGRAMS).as_secs_f64();
    Err(Error::Late { doing: "send a datagram back (does a firewall drop them?)", seconds })
}

/// A running test, and the socket (or sockets, or the address to connect to) of its messages.
#[derive(Debug)]
pub struct Test<'a, S> {
    client: &'a mut Client,
    socket: S,
}

/// A socket whose datagrams the agent counts.
#[derive(Debug)]
pub struct Datagrams(pub UdpSocket);

/// Where an agent accepts connections, and its answer on each.
#[derive(Clone, Copy, Debug)]
pub struct Accepting {
    address: SocketAddr,
    cookie: Cookie,
}

impl Accepting {
    /// Connects: the calls socket and connect, and nothing else. The agent's kernel answers.
    ///
    /// # Errors
    /// A failed call.
    #[inline(always)]
    pub fn connect(&self) -> std::io::Result<TcpStream> {
        TcpStream::connect(self.address)
    }

    /// Sends a request over a connection and receives the answer, each as long as a cookie: then it is accepted.
    ///
    /// # Errors
    /// No answer, or a wrong one.
    #[inline(always)]
    pub fn ask(&self, connection: &mut TcpStream) -> Result<()> {
        const DOING: &str = "answer a request";
        let mut answer = Cookie::default();
        connection.set_read_timeout(Some(SILENCE)).map_err(Error::call("set up the test"))?;
        connection.write_all(&self.cookie).map_err(Error::call("send a request"))?;
        connection.read_exact(&mut answer).map_err(|error| match is_late(&error) {
            true => Error::Late { doing: DOING, seconds: SILENCE.as_secs_f64() },
            false => Error::call("receive an answer")(error),
        })?;
        if answer == self.cookie {
            Ok(())
        } else {
            Err(Error::nonsense(PROTOCOL.listener.program, "it gave a wrong answer"))
        }
    }

    /// The address at which it accepts them.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// A socket of a test whose bytes the agent counts, and reports on request.
pub trait IsCounted {}
impl IsCounted for Vec<TcpStream> {}
impl IsCounted for Datagrams {}

impl<S> Test<'_, S> {
    /// The socket.
    pub fn socket(&mut self) -> &mut S {
        &mut self.socket
    }
}

impl Test<'_, TcpStream> {
    /// Ends it, and returns the agent's account.
    ///
    /// # Errors
    /// A fault that the agent saw, or an agent that is gone.
    pub fn finish(self) -> Result<Seen> {
        drop(self.socket);
        self.client.outcome()
    }
}

impl Test<'_, UdpSocket> {
    /// Ends it, and returns the agent's account.
    ///
    /// # Errors
    /// A fault that the agent saw, or an agent that is gone.
    pub fn finish(self) -> Result<Seen> {
        self.client.end()
    }
}

impl<S: IsCounted> Test<'_, S> {
    /// What the agent has received or sent so far, in its own time.
    ///
    /// # Errors
    /// A lost connection, or an agent that is gone.
    pub fn counted(&mut self) -> Result<Counted> {
        self.client.channel.send(&Ask::Count, ANSWER)?;
        match self.client.channel.receive(ANSWER)? {
            Answer::Counted(counted) if !counted.follows(&self.client.counted) => {
                Err(Error::not_understood("it has counted less than before"))
            }
            Answer::Counted(counted) => {
                self.client.counted = counted;
                Ok(counted)
            }
            Answer::Failed { why } => Err(Error::Refused(why)),
            _ => Err(unasked()),
        }
    }

    /// Ends it, and returns the agent's account: nothing of what was still in flight.
    ///
    /// # Errors
    /// A fault that the agent saw, or an agent that is gone.
    pub fn finish(self) -> Result<Seen> {
        self.client.end()
    }
}

impl Test<'_, Accepting> {
    /// Ends it, and returns the agent's account.
    ///
    /// # Errors
    /// A fault that the agent saw, or an agent that is gone.
    pub fn finish(self) -> Result<Seen> {
        self.client.end()
    }
}
