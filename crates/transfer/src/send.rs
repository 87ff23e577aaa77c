//! The sending end: what a user named is offered, and what the receiver wants of it is sent.

mod apart;
mod choosing;
mod content;
mod ending;
mod files;
mod joining;
mod offering;
mod split;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kelvin_sys::interrupt;
use kelvin_sys::net::waiting;
use kelvin_wire::Error as WireError;
use kelvin_wire::address::is_loopback;
use kelvin_wire::deadline::Deadline;
use kelvin_wire::noise::Handshake;
use kelvin_wire::secret::Secret;

use crate::bare::Connection;
use crate::by_method::Ways;
use crate::channel::{Apart, Channel, Stream};
use crate::load::Watch;
use crate::message::{FromReceiver, FromSender, Reason, Settings, Verdict};
use crate::moving::{SendPath, SendSetup};
use crate::pace::Pace;
use crate::session::BATCH_BYTES;
use crate::source::{Collection, LeftOut, Opener};
use crate::summary::{Amount, Moved, Summary};
use crate::{Error, HANDSHAKE, PROTOCOL, Result};
use apart::Another;
use choosing::Choosing;
pub use choosing::Moments;
use ending::Ended;
use joining::{Door, Others};
use offering::{Room, Told};

/// Time to connect.
pub(crate) const CONNECT: Duration = Duration::from_secs(5);

/// A file that was not moved, and why.
#[derive(Debug)]
pub struct Unsent {
    /// The file.
    pub path: PathBuf,
    /// Why.
    pub why: Error,
}

/// How to send.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    /// What both ends know.
    pub settings: Settings,
    /// Whether the next file waits until the receiver has this one in its place.
    pub acknowledge: bool,
    /// Bytes a second at most.
    pub limit: Option<u64>,
    /// By what the bytes of large files go that are not encrypted; what is fastest, where nothing is asked for.
    pub moving: Option<SendSetup>,
    /// Whether large files begin with one stream and go on with as many as are found to be fastest, and by what moments.
    pub choose: Option<Moments>,
}

/// What became of all.
#[derive(Debug)]
pub struct Sent {
    /// What was moved, how fast, and what limited it.
    pub summary: Summary,
    /// What was not moved.
    pub unsent: Vec<Unsent>,
    /// Files that were there already, and unchanged.
    pub unchanged: u64,
    /// What was left out.
    pub left_out: LeftOut,
    /// Files that state no bytes and have some: they were read until their end.
    pub unstated: u64,
    /// In a dry run: what would be sent.
    pub planned: Vec<PathBuf>,
}

/// A connection to a receiver.
pub struct Sender<S = TcpStream> {
    channel: Channel<S>,
    /// More connections of its session.
    others: Others,
    /// Makes the connections of files, if each has one of its own.
    another: Option<Another<S>>,
    manner: Manner,
    begun: Instant,
    watch: Watch,
}

impl Sender {
    /// Connects to the first of these addresses that answers, and shakes hands.
    ///
    /// # Errors
    /// No answer; another host without a secret; a receiver of another version or secret, or without a place.
    pub fn connect(addresses: &[SocketAddr], secret: &Secret, manner: Manner) -> Result<Self> {
        let begun = Instant::now();
        check_secret(addresses, secret)?;
        let stream = connect(addresses)?;
        let peer = stream.peer_addr().map_err(WireError::call("set up the connection"))?;
        let channel = shake_hands(stream, secret)?;
        let choose = manner.choose.map(|moments| moments.over(round_trip(&channel)));
        let mut sender = Self::over(channel, (Manner { choose, ..manner }, begun))?;
        let Settings { streams, connection, .. } = manner.settings;
        if connection == Connection::PerFile {
            sender.connect_for_each(peer, secret)?;
        } else if streams > 1 {
            sender.join(peer, secret)?;
        } else {
            sender.others.door = manner.choose.map(|_| Door::new(peer, secret, manner.settings.plain));
        }
        Ok(sender)
    }
}

/// A channel over a new connection.
pub(crate) fn shake_hands<S: Stream>(mut stream: S, secret: &Secret) -> Result<Channel<S>> {
    let handshake = Handshake { protocol: &PROTOCOL, secret, deadline: Deadline::within(HANDSHAKE) };
    let halves = handshake.call(&mut stream)?;
    Channel::new(stream, halves)
}

impl<S: Stream> Sender<S> {
    /// Over a channel that was opened for it, with the time of the first action.
    pub(crate) fn over(mut channel: Channel<S>, (manner, begun): (Manner, Instant)) -> Result<Self> {
        channel.set_plain(manner.settings.plain);
        channel.queue(&FromSender::Begin(manner.settings))?;
        Ok(Self { channel, others: Others::default(), another: None, manner, begun, watch: Watch::begin() })
    }

    /// Sends all, and finishes. `progress` sees the bytes sent so far, and of how many, once that is known.
    ///
    /// # Errors
    /// A broken connection, a receiver that refuses all, or a signal. What concerns one file alone is returned.
    pub fn send(mut self, collection: Collection, progress: &dyn Fn(u64, Option<u64>)) -> Result<Sent> {
        let mut sending = Sending::new(&mut self.channel, self.manner, collection, progress);
        let moments = self.manner.choose.filter(|_| self.others.door.is_some());
        sending.choosing = moments.map(|moments| Choosing::new(moments, self.manner.limit));
        sending.others = std::mem::take(&mut self.others);
        sending.another = self.another.take();
        sending.run()?;
        sending.ways.finish()?;
        let (method, chosen) = (sending.ways.method(), sending.choosing.as_ref().and_then(Choosing::chosen));
        let (carried, setup) = (sending.apart.carried(sending.channel), sending.ways.setup());
        let Sending { collection, unsent: failed, unchanged, without_attributes, planned, moved, .. } = sending;
        let Collection { sources, unread, mut left_out, .. } = collection;
        left_out.attributes += without_attributes;
        let unread = unread.into_iter().map(|(path, why)| Unsent { path, why });
        let unsent: Vec<Unsent> = unread.chain(failed).collect();
        let unstated = sources.iter().filter(|source| source.is_unstated()).count() as u64;
        let summary =
            self.finish(&sources, Ended { moved, failed: unsent.len() as u64, method, setup, chosen, carried })?;
        Ok(Sent { summary, unsent, unchanged, left_out, unstated, planned })
    }
}

/// An error where one of these is another host, and there is no secret.
pub(crate) fn check_secret(addresses: &[SocketAddr], secret: &Secret) -> Result<()> {
    match addresses.iter().find(|address| !secret.is_some() && !is_loopback(**address)) {
        Some(&address) => Err(Error::Open { address }),
        None => Ok(()),
    }
}

fn connect(addresses: &[SocketAddr]) -> Result<TcpStream> {
    let stream = to_the_first(addresses, |address| TcpStream::connect_timeout(&address, CONNECT))?;
    stream.set_nodelay(true).map_err(WireError::call("set up the connection"))?;
    Ok(stream)
}

/// The shortest round trip of a connection so far, as the kernel has measured it; none where it does not say.
fn round_trip(channel: &Channel) -> Duration {
    let socket = channel.socket().ok().flatten();
    let seen = socket.and_then(|socket| waiting::on_the_way(&socket).ok());
    seen.map_or(Duration::ZERO, |seen| Duration::from_nanos(seen.least_round_trip))
}

/// Connects to the first of these addresses that answers.
pub(crate) fn to_the_first<T>(
    addresses: &[SocketAddr],
    connect: impl Fn(SocketAddr) -> std::io::Result<T>,
) -> Result<T> {
    let mut last = ErrorKind::AddrNotAvailable.into();
    for &address in addresses {
        match connect(address) {
            Ok(connected) => return Ok(connected),
            Err(error) => last = error,
        }
    }
    Err(WireError::Call { doing: "connect to the receiver", source: last }.into())
}

/// A file that is wanted, and its blocks that need not come.
struct Wanted {
    number: usize,
    kept: Vec<u8>,
}

/// All that is sent over one connection.
struct Sending<'a, S> {
    channel: &'a mut Channel<S>,
    others: Others,
    choosing: Option<Choosing>,
    another: Option<Another<S>>,
    apart: Apart<S>,
    /// The last files that had connections of their own, and these, until the receiver has closed them.
    ending: VecDeque<(usize, Channel<S>)>,
    manner: Manner,
    collection: Collection,
    room: Room,
    progress: &'a dyn Fn(u64, Option<u64>),
    /// Bytes of all, once that is known.
    all: Option<u64>,
    pace: Arc<Pace>,
    ways: Ways<SendPath>,
    /// How many were offered, and of how many the receiver's decision is known.
    offered: usize,
    decided: usize,
    /// What is wanted and was not sent.
    ready: VecDeque<Wanted>,
    /// Files of which the receiver says what it has.
    resumed: HashMap<usize, Told>,
    /// Which files were sent and have no verdict, with their bytes.
    unjudged: BTreeMap<usize, Amount>,
    /// The file that was refused last.
    refused: Option<usize>,
    /// Whether other streams carry blocks of the file that is being sent.
    is_beside_others: bool,
    /// Bytes that need not be sent any more.
    passed: u64,
    moved: Moved,
    unsent: Vec<Unsent>,
    unchanged: u64,
    opener: Opener,
    /// Whether files with extended attributes are counted, and how many were.
    counts_attributes: bool,
    without_attributes: u64,
    planned: Vec<PathBuf>,
    buffer: Vec<u8>,
}

impl<'a, S: Stream> Sending<'a, S> {
    fn new(
        channel: &'a mut Channel<S>,
        manner: Manner,
        collection: Collection,
        progress: &'a dyn Fn(u64, Option<u64>),
    ) -> Self {
        let all = collection.is_whole().then(|| collection.bytes());
        let room = if all.is_some() { Room::OfAll } else { Room::Asked };
        let counts_attributes = collection.counts_attributes;
        let (ready, resumed, unjudged) = (VecDeque::new(), HashMap::new(), BTreeMap::new());
        let (unsent, planned, buffer) = (Vec::new(), Vec::new(), Vec::new());
        let pace = Arc::new(Pace::new(manner.limit));
        let Settings { plain, verify, streams, .. } = manner.settings;
        // Streams that have joined read and send, and so does the first one of several.
        let ways = Ways::of_sending(manner.moving, plain && streams == 1, verify);
        let (offered, decided, refused, passed, moved, unchanged) = (0, 0, None, 0, Moved::default(), 0);
        Self {
            channel,
            others: Others::default(),
            choosing: None,
            another: None,
            apart: Apart::none(),
            ending: VecDeque::new(),
            manner,
            collection,
            room,
            progress,
            all,
            pace,
            ways,
            offered,
            decided,
            ready,
            resumed,
            unjudged,
            refused,
            is_beside_others: false,
            passed,
            moved,
            unsent,
            unchanged,
            opener: Opener::default(),
            counts_attributes,
            without_attributes: 0,
            planned,
            buffer,
        }
    }

    fn run(&mut self) -> Result<()> {
        loop {
            let has_offered = self.offer()?;
            while let Some(message) = self.channel.received()? {
                self.hear(message)?;
            }
            if self.room == Room::Short {
                self.find_all()?;
            } else if let Some(wanted) = self.ready.pop_front_if(|_| self.room != Room::Asked) {
                self.send_next(wanted)?;
            } else if has_offered {
                // Something may have been decided on meanwhile.
            } else if self.in_flight() > 0 {
                let message = self.channel.receive()?;
                self.hear(message)?;
            } else {
                return Ok(());
            }
        }
    }

    /// Entries that were offered and have not ended.
    fn in_flight(&self) -> usize {
        (self.offered - self.decided) + self.ready.len() + self.resumed.len() + self.unjudged.len()
    }

    fn hear(&mut self, message: FromReceiver) -> Result<()> {
        match message {
            FromReceiver::Decisions(decisions) => decisions.into_iter().try_for_each(|one| self.decided(one)),
            FromReceiver::Have { file, first, digests, is_all } => self.compare((file, first), &digests, is_all),
            FromReceiver::Verdicts(verdicts) => verdicts.into_iter().try_for_each(|verdict| self.judged(verdict)),
            FromReceiver::Refused(Reason(why)) => Err(Error::RefusedAll(why)),
            FromReceiver::Finished(_) => Err(Error::Nonsense("it has finished before all was sent")),
            FromReceiver::Session(_) | FromReceiver::Took(_) => Err(Error::Nonsense(STREAMS)),
            FromReceiver::Room { is_enough } => self.told_of_room(is_enough),
            FromReceiver::Invited(invitation) => self.choosing()?.invited(invitation),
            FromReceiver::Arrived(arrived) => self.choosing()?.arrived(arrived, Instant::now()),
        }
    }

    fn choosing(&mut self) -> Result<&mut Choosing> {
        self.choosing.as_mut().ok_or(Error::Nonsense(STREAMS))
    }

    fn judged(&mut self, Verdict { file, why }: Verdict) -> Result<()> {
        let number = file as usize;
        let source = self.collection.sources[..self.decided].get(number).ok_or(Error::Nonsense(UNKNOWN))?;
        // It may have failed on both sides at once.
        let Some(amount) = self.unjudged.remove(&number) else { return Ok(()) };
        match why {
            None => {
                self.moved.add(&source.entry, &amount);
            }
            Some(Reason(why)) => {
                self.refused = Some(number);
                self.unsent.push(Unsent { path: source.shown().to_owned(), why: Error::Refused(why) });
            }
        }
        Ok(())
    }

    /// Counts bytes of a file that has no verdict.
    fn count(&mut self, number: usize, count: impl FnOnce(&mut Amount)) {
        self.unjudged.get_mut(&number).map(count);
    }

    fn pass(&mut self, bytes: u64) {
        self.passed += bytes;
        self.apart.or(self.channel).look_at_link(!self.is_beside_others);
        (self.progress)(self.passed, self.all);
    }

    /// The buffer, of at least [`BATCH_BYTES`] and one more, to be put back after use; a new one where it was not.
    fn take_buffer(&mut self) -> Vec<u8> {
        const BUFFER: usize = BATCH_BYTES as usize + 1;
        let buffer = std::mem::take(&mut self.buffer);
        if buffer.len() < BUFFER { vec![0; BUFFER] } else { buffer }
    }

    fn stop_if_asked(&self) -> Result<()> {
        interrupt::requested().map_or(Ok(()), |signal| Err(Error::Interrupted(signal)))
    }
}

/// What a receiver did wrong.
const UNKNOWN: &str = "it speaks of a file that was not offered";
const STREAMS: &str = "it speaks of streams";
