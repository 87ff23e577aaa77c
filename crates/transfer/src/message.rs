//! The messages of the two ends, in postcard: short, and every list and text has a bound where it is read.
//!
//! The sender offers entries ([`FileEntry`]), files and others, ahead of their content; the receiver decides on each. What is wanted
//! follows as pieces. These are the whole content of small files together ([`SenderMessage::Batch`]), or a block of a large one
//! ([`SenderMessage::Block`]), each announced and followed by exactly this many bytes. The receiver's verdicts come as they fall; the
//! sender waits for them only at the end, or, where asked to, after each file.

use std::ffi::OsString;
use std::fmt;
use std::ops::Range;
use std::os::unix::ffi::OsStringExt;

use rustix::fs::Stat;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use crate::compression::CompressionReport;
use crate::datapath::{ReceiveMethod, SendMethod, words};
use crate::file_name::FileName;
use crate::link_usage::LinkUsage;
use crate::rate_prediction::{RatePrediction, StageCosts};
use crate::stage_times::EndLoad;
use crate::wire::limits_serde::{self, MAX_REASON_BYTES};
use crate::wire::secret::Nonce;

/// A BLAKE3 digest.
pub type Blake3Digest = [u8; 32];
/// Most extended attributes of a file, and most bytes of their names and values: about what ext4 keeps in addition to an inode.
pub const MAX_ATTRIBUTES: usize = 64;
/// See [`MAX_ATTRIBUTES`].
pub const MAX_ATTRIBUTE_BYTES: usize = 4096;
/// Permissions that an entry can have.
pub const PERMISSION_BITS: u32 = 0o777;
/// Most bytes of a file in a batch.
pub const MAX_SMALL_FILE: u64 = 64 << 10;
/// The number of an entry: how many were offered before it.
pub type EntryNumber = u32;
/// What a session is joined by: random, and sent to its sender alone.
pub type SessionId = Nonce;

/// What the sender sends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum SenderMessage {
    /// The beginning.
    Begin(SessionSettings),
    /// More entries.
    Offer(Vec<FileEntry>),
    /// Of a file of which the receiver has a part: a bit for each block that is right, the lowest first.
    ValidBlocks {
        /// The file.
        file: EntryNumber,
        /// The bits.
        blocks: Vec<u8>,
    },
    /// The whole content of each of these files follows, one after the other.
    Batch {
        /// The files.
        files: Vec<WholeFile>,
        /// The digest of all that follows, unless nothing is verified.
        digest: Option<Blake3Digest>,
    },
    /// A part of a block follows.
    Block(FilePiece),
    /// A part of a block is a hole.
    Hole(FilePiece),
    /// The digests of the next parts of blocks, in the order in which they were sent, unless nothing is verified.
    Digests(Vec<Blake3Digest>),
    /// The file will not follow.
    Abandoned {
        /// The file.
        file: EntryNumber,
        /// Why.
        #[serde(deserialize_with = "limits_serde::bounded::<{ MAX_REASON_BYTES as u64 }, _, _>")]
        why: String,
    },
    /// All files are found: their bytes, holes not counted, where it was not known how many.
    TotalFound(u64),
    /// All was sent; the receiver shall finish, and report what it measured.
    End,
    /// What the sender measured.
    Finish(Box<SenderReport>),
    /// The first word of a connection that joins a session.
    Join(JoinRequest),
    /// Blocks of this file, each one whole, may come over all streams from now on, until the next one is split.
    Split(EntryNumber),
    /// What follows of this file comes over a connection of its own, until that one reports that all was sent.
    FileConnection(EntryNumber),
    /// More connections may be worth it now, which were not announced: by what could they join?
    QueryJoin,
    /// How much has arrived so far?
    QueryArrived,
    /// All was sent: what is in the directories that were offered, and was not offered?
    QueryExtraneous,
    /// These of the list are to be deleted, those of the highest numbers first.
    Delete {
        /// Their numbers in the list.
        entries: Vec<u32>,
        /// Whether no more follow.
        is_all: bool,
    },
    /// The first word of a sender whose files go into a directory below the receiver's: the names on the way there. Then it begins.
    Enter(Vec<FileName>),
    /// A file that is there in an older state: which of its blocks are there?
    QueryBlocks(EntryNumber),
    /// Like `Batch`, of which all content is in one frame of zstd.
    CompressedBatch {
        /// The files.
        files: Vec<WholeFile>,
        /// The digest of their content, unless nothing is verified.
        digest: Option<Blake3Digest>,
        /// Bytes of the frame that follows.
        frame_bytes: u32,
    },
    /// Like `Block`, of which the part is in a frame of zstd.
    CompressedBlock {
        /// The part.
        piece: FilePiece,
        /// Bytes of the frame that follows.
        frame_bytes: u32,
    },
}

words! { "lifetime of a connection",
    /// How long a connection lasts.
    ConnectionLifetime {
        /// One for each file.
        PerFile = "per-file",
        /// One for all files.
        Persistent = "persistent",
    }
}

/// What holds for all files of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionSettings {
    /// Whether the bytes of files go unencrypted.
    pub plain: bool,
    /// Whether all goes through a remote shell, which protects it.
    pub remote_shell: bool,
    /// Whether they may come compressed.
    pub compressed: bool,
    /// Whether their digests are compared.
    pub verify: bool,
    /// Whether all is flushed to its device.
    pub sync: bool,
    /// Whether files of the same size and time of modification are left as they are.
    pub update: bool,
    /// Whether what is there already is left as it is, whatever it is.
    pub ignore_existing: bool,
    /// Whether nothing is to be written.
    pub dry_run: bool,
    /// Whether what is in directories and was not offered is to be deleted.
    pub delete: bool,
    /// Whether access control lists are to be kept.
    pub acls: bool,
    /// Bytes of all files, holes not counted; none where unknown.
    pub bytes: Option<u64>,
    /// No more bytes than these, where it is not known yet how many: the receiver answers whether there is room for them.
    pub at_most: Option<u64>,
    /// Over how many connections blocks come, this one included.
    pub streams: u32,
    /// Whether each file comes over a connection of its own, with the first one for all else.
    pub connection: ConnectionLifetime,
}

impl SessionSettings {
    /// All over one connection, encrypted and verified, and nothing more.
    pub const DEFAULT: Self = Self {
        plain: false,
        remote_shell: false,
        compressed: false,
        verify: true,
        sync: false,
        update: false,
        ignore_existing: false,
        dry_run: false,
        delete: false,
        acls: false,
        bytes: None,
        at_most: None,
        streams: 1,
        connection: ConnectionLifetime::Persistent,
    };
}

/// Which session a connection joins, and for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinRequest {
    /// The session.
    pub session: SessionId,
    /// The file whose content will follow; none if it is one more stream, for blocks of the file that is split.
    pub file: Option<EntryNumber>,
}

/// By what connections that were not announced can join a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinInvitation {
    /// The session.
    pub session: SessionId,
    /// This many streams at most, the first one included.
    pub max_streams: u32,
}

/// How much has arrived since the session began, by the receiver's own clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrivedBytes {
    /// Bytes of files that were received and written, over all streams.
    pub bytes: u64,
    /// When they were counted.
    pub nanoseconds: u64,
}

impl ArrivedBytes {
    pub(crate) fn add(self, other: &Self) -> Self {
        let bytes = self.bytes.saturating_add(other.bytes);
        Self { bytes, nanoseconds: self.nanoseconds.saturating_add(other.nanoseconds) }
    }

    /// What has arrived since then.
    pub(crate) fn since(self, first: &Self) -> Self {
        let bytes = self.bytes.saturating_sub(first.bytes);
        Self { bytes, nanoseconds: self.nanoseconds.saturating_sub(first.nanoseconds) }
    }

    /// Bytes a nanosecond.
    pub(crate) fn rate(&self) -> f64 {
        self.bytes as f64 / self.nanoseconds.max(1) as f64
    }
}

/// A file, directory or link that is offered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Its directory: 0 for the one that the receiver serves, n for the n-th that was offered.
    pub parent: u32,
    /// Its name there.
    pub name: FileName,
    /// What it is.
    pub kind: EntryKind,
    /// Its permissions; others than for reading, writing and executing are ignored.
    pub mode: u32,
    /// When it was last written.
    pub modified: Mtime,
    /// User and group, if they are to be kept.
    pub owner: Option<(u32, u32)>,
    /// Extended attributes of the user's name space, if they are to be kept.
    #[serde(deserialize_with = "few_attributes")]
    pub attributes: Vec<Attribute>,
    /// Of a file: whether further names of it may follow, as hard links.
    pub has_links: bool,
    /// Access control lists, if they are to be kept.
    #[serde(deserialize_with = "few_acls")]
    pub acls: Vec<Acl>,
}

impl FileEntry {
    /// One that has a name, a kind, permissions and a time, and nothing else that is to be kept.
    pub(crate) fn new((parent, name): (u32, FileName), kind: EntryKind, (mode, modified): (u32, Mtime)) -> Self {
        let (attributes, acls) = (Vec::new(), Vec::new());
        Self { parent, name, kind, mode, modified, owner: None, attributes, has_links: false, acls }
    }

    /// Whether a file comes with others.
    pub(crate) fn is_small(&self) -> bool {
        matches!(self.kind, EntryKind::File { bytes, stored } if bytes <= MAX_SMALL_FILE && stored >= bytes)
    }

    /// Bytes of its access control lists.
    pub(crate) fn acl_bytes(&self) -> usize {
        self.acls.iter().map(|acl| acl.list.len()).sum()
    }
}

/// What an entry is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EntryKind {
    /// A regular file of this many bytes.
    File {
        /// Its size.
        bytes: u64,
        /// Bytes that it takes on a disk, where holes take none.
        stored: u64,
    },
    /// A file whose size is known at its end.
    Stream,
    /// A directory.
    Directory,
    /// A symbolic link to this path.
    Link {
        /// The path, any bytes but NUL.
        target: Vec<u8>,
    },
    /// A further name of a file that is in its place.
    HardLink {
        /// The file.
        first: EntryNumber,
    },
}

/// An extended attribute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attribute {
    /// Its name, without `user.`.
    pub name: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
}

impl Attribute {
    /// Its name, as the system has it.
    pub(crate) fn full_name(&self) -> OsString {
        OsString::from_vec([b"user.", &self.name[..]].concat())
    }
}

/// An access control list, as the kernel has it: users and groups are numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acl {
    /// For what it is.
    pub kind: AclKind,
    /// The list. Whether it is one, the kernel checks that sets it.
    pub list: Vec<u8>,
}

/// For what an access control list is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AclKind {
    /// The file or directory itself.
    Access,
    /// What will be made in the directory.
    Default,
}

impl AclKind {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Access, Self::Default];

    /// The extended attribute that it is.
    pub(crate) fn attribute_name(self) -> &'static str {
        match self {
            Self::Access => "system.posix_acl_access",
            Self::Default => "system.posix_acl_default",
        }
    }
}

/// The access control lists of a file, if they are no longer than its other attributes may be.
fn few_acls<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Acl>, D::Error> {
    let acls = Vec::<Acl>::deserialize(deserializer)?;
    let bytes: usize = acls.iter().map(|acl| acl.list.len()).sum();
    let are_few = acls.len() <= AclKind::ALL.len() && bytes <= MAX_ATTRIBUTE_BYTES;
    if are_few { Ok(acls) } else { Err(D::Error::custom("longer access control lists than are sent for a file")) }
}

/// The attributes of a file, if they are few: a receiver holds those of many files.
fn few_attributes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Attribute>, D::Error> {
    let attributes = Vec::<Attribute>::deserialize(deserializer)?;
    let bytes: usize = attributes.iter().map(|attribute| attribute.name.len() + attribute.value.len()).sum();
    let are_few = attributes.len() <= MAX_ATTRIBUTES && bytes <= MAX_ATTRIBUTE_BYTES;
    if are_few { Ok(attributes) } else { Err(D::Error::custom("more extended attributes than are sent for a file")) }
}

/// The content of a small file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WholeFile {
    /// The file.
    pub file: EntryNumber,
    /// Its bytes: as many as were offered, and then right; or it has changed since.
    pub bytes: u32,
}

/// A part of a file, inside one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilePiece {
    /// The file.
    pub file: EntryNumber,
    /// Its first byte.
    pub offset: u64,
    /// How many bytes.
    pub bytes: u32,
    /// Whether it is the last one that is sent of a file: one whose size was unknown ends by it.
    pub is_last: bool,
}

impl FilePiece {
    /// Where it is in the file.
    pub(crate) fn range(&self) -> Range<u64> {
        self.offset..self.offset.saturating_add(self.bytes.into())
    }
}

/// A time of modification, as stat(2) has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Mtime {
    /// Seconds since 1970.
    pub seconds: i64,
    /// Nanoseconds of the next second.
    pub nanoseconds: u32,
}

impl Mtime {
    /// That of a file.
    pub(crate) fn of_stat(stat: &Stat) -> Self {
        Self { seconds: stat.st_mtime, nanoseconds: stat.st_mtime_nsec as u32 }
    }
}

/// What the sender measured, and what it could not send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SenderReport {
    /// Nanoseconds from the sender's first action until the receiver had written the last byte.
    pub nanoseconds: u64,
    /// Files that were not moved.
    pub failed: u64,
    /// What the sender did.
    pub load: EndLoad,
    /// What its connection carried, if the kernel reports it.
    pub carried: Option<LinkUsage>,
    /// The rate that was to be expected, if it was predicted.
    pub expected: Option<RatePrediction>,
    /// By what method the bytes of large files went, if there were any.
    pub method: Option<SendMethod>,
    /// Which number of streams was found to be fastest, if that was compared.
    pub chosen: Option<StreamChoice>,
    /// What compressing came to, where it was asked for.
    pub compression: Option<CompressionReport>,
}

/// A number of streams that was compared with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamChoice {
    /// This many.
    pub streams: u32,
    /// Their rate, in thousandths of that of one.
    pub thousandths: u64,
    /// This many were not faster, if more were tried.
    pub no_faster: Option<u32>,
}

impl StreamChoice {
    /// How many times the rate of one stream theirs was.
    pub fn speedup(&self) -> f64 {
        self.thousandths as f64 / 1e3
    }
}

/// Why this number.
impl fmt::Display for StreamChoice {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.streams > 1 {
            write!(out, "{:.1} times the rate of one", self.speedup())?;
        }
        match self.no_faster {
            Some(count) if self.streams > 1 => write!(out, ", {count} no faster"),
            Some(count) => write!(out, "{count} were no faster"),
            None => Ok(()),
        }
    }
}

/// What the receiver answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ReceiverMessage {
    /// What becomes of the next offered entries, in their order.
    Decisions(Vec<EntryDecision>),
    /// It has these blocks of a file, from this one on, of which some may be right; the last ones if `is_all`.
    PresentBlocks {
        /// The file.
        file: EntryNumber,
        /// The first block.
        first: u32,
        /// Their digests.
        digests: Vec<Blake3Digest>,
        /// Whether no more follow.
        is_all: bool,
    },
    /// How files ended.
    Verdicts(Vec<Verdict>),
    /// Nothing is taken.
    Refused(RefusalReason),
    /// All was written.
    Finished(ReceiverReport),
    /// Whether there is room for as many bytes as there are at most.
    SpaceAvailable(bool),
    /// By what more connections can join.
    Session(SessionId),
    /// By what more connections can join, which were not announced; nothing if none can.
    JoinInvitation(Option<JoinInvitation>),
    /// How much has arrived.
    Arrived(ArrivedBytes),
    /// More of what was not offered, in the order of its numbers.
    Extraneous {
        /// These.
        entries: Vec<ExtraneousEntry>,
        /// Whether no more follow, and why they do not.
        end: Option<ListEnd>,
    },
    /// All was deleted that could be, or would be.
    Deleted {
        /// What could not be deleted, and why.
        failures: Vec<DeletionFailure>,
        /// Whether no more follow.
        is_all: bool,
    },
    /// Over a stream that has joined: that it has, and then of each block, one after another, that it was written, or why not.
    BlockWritten(Option<RefusalReason>),
}

/// Something in a directory of the receiver that was not offered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtraneousEntry {
    /// Its directory.
    pub parent: ExtraneousParent,
    /// Its name there.
    pub name: FileName,
    /// Whether it is a directory.
    pub is_directory: bool,
}

/// The directory of something that was not offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExtraneousParent {
    /// The n-th that was offered.
    Offered(u32),
    /// One that was not offered either, by its number in the list.
    Extraneous(u32),
}

/// How a list ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ListEnd {
    /// It is complete.
    Complete,
    /// It cannot be made, and nothing is to be deleted.
    Failed(RefusalReason),
}

/// Something that could not be deleted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeletionFailure {
    /// Its number in the list.
    pub entry: u32,
    /// Why.
    pub why: RefusalReason,
}

/// What becomes of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EntryDecision {
    /// A file's content may come.
    Wanted,
    /// Like `Wanted`, and [`ReceiverMessage::PresentBlocks`] states what of it is there.
    Resumed,
    /// Like `Wanted`, and an older state is there, of which [`SenderMessage::QueryBlocks`] asks for the blocks.
    Changed,
    /// The file is there and need not come.
    Unchanged,
    /// A directory or a link was made.
    Made,
    /// It is refused.
    Refused(RefusalReason),
}

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusalReason(
    #[serde(deserialize_with = "limits_serde::bounded::<{ MAX_REASON_BYTES as u64 }, _, _>")] pub String,
);

/// How a file ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// The file.
    pub file: EntryNumber,
    /// Nothing if it is in its place, else why it is not.
    pub why: Option<RefusalReason>,
}

/// What the receiver measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiverReport {
    /// Nanoseconds since the last byte was written.
    pub since: u64,
    /// What the receiver did.
    pub load: EndLoad,
    /// What its stages cost, if the transfer was long enough to be predicted.
    pub costs: Option<StageCosts>,
    /// Bytes that were written and are not on their device yet; nothing where unknown.
    pub unwritten_bytes: Option<u64>,
    /// By what method the bytes of large files came, if there were any.
    pub method: Option<ReceiveMethod>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn received_messages_are_bounded() {
        let is_accepted = |why: &str| {
            let message =
                ReceiverMessage::Verdicts(vec![Verdict { file: 1, why: Some(RefusalReason(why.to_owned())) }]);
            postcard::from_bytes::<ReceiverMessage>(&postcard::to_stdvec(&message).unwrap()).is_ok()
        };
        assert!(
            is_accepted("disk full") && !is_accepted(&"x".repeat(MAX_REASON_BYTES + 1)) && !is_accepted("\u{1b}[2J")
        );
        // A list that claims to have more entries than bytes came costs no memory.
        let huge = [1, 0xff, 0xff, 0xff, 0xff, 0x0f];
        assert!(postcard::from_bytes::<SenderMessage>(&huge).is_err());
    }

    #[test]
    fn choice_shows_speedup_and_next_candidate() {
        let why = |streams, thousandths, no_faster| StreamChoice { streams, thousandths, no_faster }.to_string();
        assert_eq!(why(1, 1000, Some(2)), "2 were no faster");
        assert_eq!(why(4, 3120, Some(8)), "3.1 times the rate of one, 8 no faster");
        assert_eq!(why(8, 7900, None), "7.9 times the rate of one");
    }
}
