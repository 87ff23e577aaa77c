//! A file system in memory that a test serves by FUSE itself (include/uapi/linux/fuse.h): it behaves as those of other machines and
//! programs do that no test can have here.

use std::collections::{BTreeMap, HashMap};
use std::ffi::CString;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};

use crate::MissingRequirement;

/// How it behaves.
#[derive(Clone, Debug)]
pub struct FuseBehavior {
    /// Most bytes of a file that it stores: a longer one is refused when it is closed or flushed, and is empty then (a quota of NFS or
    /// of a store behind FUSE).
    pub max_file_bytes: u64,
    /// What it states as the size of every file that has some bytes, and has it read until its end, as /proc does; none if it states
    /// the sizes that they have.
    pub stated_size: Option<u64>,
    /// Whether its files are read past the page cache (FOPEN_DIRECT_IO), and so cannot be mapped; those with another size than they
    /// state are.
    pub is_direct: bool,
    /// Whether it renames without replacing.
    pub renames_without_replacing: bool,
    /// The error of making a hard link; none if it makes them.
    pub link_error: Option<Errno>,
    /// The unit of the times that it keeps, in nanoseconds.
    pub time_unit: u64,
    /// Most bytes of a name.
    pub max_name_bytes: usize,
}

impl Default for FuseBehavior {
    /// As a usual one.
    fn default() -> Self {
        Self {
            max_file_bytes: u64::MAX,
            stated_size: None,
            is_direct: false,
            renames_without_replacing: true,
            link_error: None,
            time_unit: 1,
            max_name_bytes: 255,
        }
    }
}

/// What it was asked for.
#[derive(Debug, Default)]
pub struct RequestCounts {
    /// How often a directory was opened to be listed.
    pub listings: AtomicU64,
}

/// Mounts it, and serves it until it is unmounted, by a thread of its own.
///
/// # Errors
/// What is missing for it here.
pub(crate) fn serve(path: &Path, behaviour: FuseBehavior) -> Result<Arc<RequestCounts>, MissingRequirement> {
    let privilege_error = |error: std::io::Error| MissingRequirement::privilege(format!("FUSE: {error}"));
    let device = File::options().read(true).write(true).open("/dev/fuse").map_err(privilege_error)?;
    let options = format!("fd={},rootmode=40000,user_id=0,group_id=0,default_permissions", device.as_raw_fd());
    let options = CString::new(options).map_err(|error| privilege_error(error.into()))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("kelvin-testing", path, "fuse", flags, options.as_c_str()).map_err(|error| privilege_error(error.into()))?;
    let counts = Arc::new(RequestCounts::default());
    let mut server = FuseServer::new(behaviour, Arc::clone(&counts));
    std::thread::Builder::new().name("fuse".into()).spawn(move || server.serve(&device)).map_err(privilege_error)?;
    Ok(counts)
}

/// Bytes of a request: those of a write, and what goes before them.
const MAX_REQUEST_BYTES: usize = MAX_WRITE_BYTES + (8 << 10);
/// Most bytes of a write.
const MAX_WRITE_BYTES: usize = 128 << 10;
/// Bytes of what goes before a request and an answer.
const IN_HEADER_BYTES: usize = 40;
const OUT_HEADER_BYTES: usize = 16;
const ROOT_NODE: u64 = 1;
/// Types of files, as `st_mode` has them.
const MODE_DIRECTORY: u32 = 0o040_000;
const MODE_REGULAR: u32 = 0o100_000;
const MODE_SYMLINK: u32 = 0o120_000;
/// FOPEN_DIRECT_IO.
const FOPEN_DIRECT_IO: u32 = 1;

mod operation {
    pub const LOOKUP: u32 = 1;
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const SETATTR: u32 = 4;
    pub const READLINK: u32 = 5;
    pub const SYMLINK: u32 = 6;
    pub const MKDIR: u32 = 9;
    pub const UNLINK: u32 = 10;
    pub const RMDIR: u32 = 11;
    pub const RENAME: u32 = 12;
    pub const LINK: u32 = 13;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const FSYNC: u32 = 20;
    pub const FLUSH: u32 = 25;
    pub const INIT: u32 = 26;
    pub const OPENDIR: u32 = 27;
    pub const READDIR: u32 = 28;
    pub const RELEASEDIR: u32 = 29;
    pub const FSYNCDIR: u32 = 30;
    pub const CREATE: u32 = 35;
    pub const INTERRUPT: u32 = 36;
    pub const BATCH_FORGET: u32 = 42;
    pub const RENAME2: u32 = 45;
}

/// A file, directory or link.
#[derive(Clone, Debug, Default)]
struct Inode {
    mode: u32,
    owner: [u32; 2],
    /// In nanoseconds since 1970.
    modified: u64,
    links: u32,
    /// The bytes of a file, or the path of a link.
    content: Vec<u8>,
    /// Whether a close or a flush was refused since it was more than is stored.
    is_refused: bool,
    names: BTreeMap<Vec<u8>, u64>,
}

/// The fields of a request after its header, one after the other.
struct FuseFields<'a>(&'a [u8]);

impl<'a> FuseFields<'a> {
    fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (first, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        first
    }

    fn u32(&mut self) -> u32 {
        self.bytes(4).try_into().map_or(0, u32::from_ne_bytes)
    }

    fn u64(&mut self) -> u64 {
        self.bytes(8).try_into().map_or(0, u64::from_ne_bytes)
    }

    /// A text that ends in a NUL.
    fn text(&mut self) -> Vec<u8> {
        let text = self.0.split(|byte| *byte == 0).next().unwrap_or_default();
        self.bytes(text.len() + 1);
        text.to_vec()
    }
}

/// The fields of an answer.
#[derive(Default)]
struct FuseReply(Vec<u8>);

impl FuseReply {
    fn u32s(&mut self, fields: &[u32]) -> &mut Self {
        fields.iter().for_each(|field| self.0.extend(field.to_ne_bytes()));
        self
    }

    fn u64s(&mut self, fields: &[u64]) -> &mut Self {
        fields.iter().for_each(|field| self.0.extend(field.to_ne_bytes()));
        self
    }
}

type ReplyResult = Result<FuseReply, Errno>;

struct FuseServer {
    behaviour: FuseBehavior,
    counts: Arc<RequestCounts>,
    nodes: HashMap<u64, Inode>,
    last_node: u64,
}

impl FuseServer {
    fn new(behaviour: FuseBehavior, counts: Arc<RequestCounts>) -> Self {
        let root = Inode { mode: MODE_DIRECTORY | 0o755, links: 2, ..Inode::default() };
        Self { behaviour, counts, nodes: HashMap::from([(ROOT_NODE, root)]), last_node: ROOT_NODE }
    }

    fn serve(&mut self, mut device: &File) {
        let mut request = vec![0; MAX_REQUEST_BYTES];
        loop {
            let count = match device.read(&mut request) {
                Ok(count) => count,
                // A request that was withdrawn before it was read (fuse(4)).
                Err(error) if [ErrorKind::Interrupted, ErrorKind::NotFound].contains(&error.kind()) => continue,
                Err(_unmounted) => return,
            };
            let mut fields = FuseFields(&request[..count]);
            let (_length, operation, unique, node) = (fields.u32(), fields.u32(), fields.u64(), fields.u64());
            if [operation::FORGET, operation::BATCH_FORGET, operation::INTERRUPT].contains(&operation) {
                continue;
            }
            let mut body = FuseFields(&request[IN_HEADER_BYTES.min(count)..count]);
            let (error, answer) = match self.answer(operation, node, &mut body) {
                Ok(answer) => (0, answer.0),
                Err(error) => (-error.raw_os_error(), Vec::new()),
            };
            let mut message = FuseReply::default();
            message.u32s(&[(OUT_HEADER_BYTES + answer.len()) as u32, error as u32]).u64s(&[unique]);
            message.0.extend(answer);
            // One that was interrupted waits for none.
            let _ = device.write(&message.0);
        }
    }

    fn answer(&mut self, operation: u32, node: u64, fields: &mut FuseFields<'_>) -> ReplyResult {
        match operation {
            operation::INIT => Ok(init_reply()),
            operation::LOOKUP => {
                let name = self.name(fields)?;
                let child = self.node(node)?.names.get(&name).copied().ok_or(Errno::NOENT)?;
                self.entry(child)
            }
            operation::GETATTR => self.attributes(node),
            operation::SETATTR => self.set_attributes(node, fields),
            operation::READLINK => Ok(FuseReply(self.node(node)?.content.clone())),
            operation::SYMLINK => {
                let name = self.name(fields)?;
                let content = fields.text();
                self.add(node, name, Inode { mode: MODE_SYMLINK | 0o777, content, links: 1, ..Inode::default() })
            }
            operation::MKDIR => {
                let (mode, _umask, name) = (fields.u32(), fields.u32(), self.name(fields)?);
                self.add(node, name, Inode { mode: MODE_DIRECTORY | mode & 0o7777, links: 2, ..Inode::default() })
            }
            operation::CREATE => {
                let (_flags, mode, _umask, _open) = (fields.u32(), fields.u32(), fields.u32(), fields.u32());
                let name = self.name(fields)?;
                let mut reply =
                    self.add(node, name, Inode { mode: MODE_REGULAR | mode & 0o7777, links: 1, ..Inode::default() })?;
                reply.0.extend(self.open_reply().0);
                Ok(reply)
            }
            operation::UNLINK | operation::RMDIR => {
                let name = self.name(fields)?;
                let child = self.node(node)?.names.get(&name).copied().ok_or(Errno::NOENT)?;
                if !self.node(child)?.names.is_empty() {
                    return Err(Errno::NOTEMPTY);
                }
                self.remove(node, &name)
            }
            operation::RENAME => {
                let new_parent = fields.u64();
                self.rename(node, new_parent, 0, fields)
            }
            operation::RENAME2 if !self.behaviour.renames_without_replacing => Err(Errno::NOSYS),
            operation::RENAME2 => {
                let (new_parent, flags, _padding) = (fields.u64(), fields.u32(), fields.u32());
                self.rename(node, new_parent, flags, fields)
            }
            operation::LINK => self.behaviour.link_error.map_or(Ok(()), Err).and_then(|()| {
                let (target, name) = (fields.u64(), self.name(fields)?);
                if self.node(node)?.names.contains_key(&name) {
                    return Err(Errno::EXIST);
                }
                self.node(target)?.links += 1;
                self.node(node)?.names.insert(name, target);
                self.entry(target)
            }),
            operation::OPEN => Ok(self.open_reply()),
            operation::OPENDIR => {
                self.counts.listings.fetch_add(1, Ordering::Relaxed);
                Ok(self.open_reply())
            }
            operation::READ => {
                let (_handle, offset, size) = (fields.u64(), fields.u64() as usize, fields.u32() as usize);
                let content = &self.node(node)?.content;
                let start = offset.min(content.len());
                Ok(FuseReply(content[start..content.len().min(start + size)].to_vec()))
            }
            operation::WRITE => self.write(node, fields),
            operation::READDIR => self.listing(node, fields),
            operation::STATFS => {
                let mut answer = FuseReply::default();
                answer.u64s(&[1 << 20; 5]).u32s(&[4096, self.behaviour.max_name_bytes as u32, 4096, 0]).u32s(&[0; 6]);
                Ok(answer)
            }
            operation::FLUSH | operation::FSYNC => {
                let max_file_bytes = self.behaviour.max_file_bytes;
                let node = self.node(node)?;
                if node.content.len() as u64 > max_file_bytes {
                    node.content.clear();
                    node.is_refused = true;
                }
                // Every copy of a descriptor is flushed when it closes, that of a process which another test starts as well.
                if node.is_refused { Err(Errno::DQUOT) } else { Ok(FuseReply::default()) }
            }
            operation::RELEASE | operation::RELEASEDIR | operation::FSYNCDIR => Ok(FuseReply::default()),
            _ => Err(Errno::NOSYS),
        }
    }

    fn node(&mut self, number: u64) -> Result<&mut Inode, Errno> {
        self.nodes.get_mut(&number).ok_or(Errno::STALE)
    }

    fn name(&self, fields: &mut FuseFields<'_>) -> Result<Vec<u8>, Errno> {
        let name = fields.text();
        if name.len() > self.behaviour.max_name_bytes { Err(Errno::NAMETOOLONG) } else { Ok(name) }
    }

    fn add(&mut self, parent: u64, name: Vec<u8>, node: Inode) -> ReplyResult {
        if self.node(parent)?.names.contains_key(&name) {
            return Err(Errno::EXIST);
        }
        self.last_node += 1;
        let number = self.last_node;
        self.nodes.insert(number, node);
        self.node(parent)?.names.insert(name, number);
        self.entry(number)
    }

    /// Takes a name away. A file stays for whoever has it open.
    fn remove(&mut self, parent: u64, name: &[u8]) -> ReplyResult {
        if let Some(number) = self.node(parent)?.names.remove(name) {
            let node = self.node(number)?;
            node.links = node.links.saturating_sub(1);
        }
        Ok(FuseReply::default())
    }

    fn rename(&mut self, old_parent: u64, new_parent: u64, flags: u32, fields: &mut FuseFields<'_>) -> ReplyResult {
        const NOREPLACE: u32 = 1;
        let (old, new) = (self.name(fields)?, self.name(fields)?);
        if flags & !NOREPLACE != 0 {
            return Err(Errno::INVAL);
        }
        let child = self.node(old_parent)?.names.get(&old).copied().ok_or(Errno::NOENT)?;
        if self.node(new_parent)?.names.contains_key(&new) {
            if flags == NOREPLACE {
                return Err(Errno::EXIST);
            }
            self.remove(new_parent, &new)?;
        }
        self.node(old_parent)?.names.remove(&old);
        self.node(new_parent)?.names.insert(new, child);
        Ok(FuseReply::default())
    }

    fn write(&mut self, node: u64, fields: &mut FuseFields<'_>) -> ReplyResult {
        let (_handle, offset, size) = (fields.u64(), fields.u64() as usize, fields.u32());
        let _rest = fields.bytes(20);
        let (bytes, content) = (fields.bytes(size as usize), &mut self.node(node)?.content);
        content.resize(content.len().max(offset + bytes.len()), 0);
        content[offset..offset + bytes.len()].copy_from_slice(bytes);
        let mut answer = FuseReply::default();
        answer.u32s(&[size, 0]);
        Ok(answer)
    }

    fn set_attributes(&mut self, number: u64, fields: &mut FuseFields<'_>) -> ReplyResult {
        const MODE: u32 = 1;
        const USER: u32 = 2;
        const GROUP: u32 = 4;
        const SIZE: u32 = 8;
        const MODIFIED: u32 = 32;
        let (valid, _padding, _handle, size, _owner) =
            (fields.u32(), fields.u32(), fields.u64(), fields.u64(), fields.u64());
        let (_accessed, seconds, _changed) = (fields.u64(), fields.u64(), fields.u64());
        let (_accessed, nanoseconds, _changed) = (fields.u32(), fields.u32(), fields.u32());
        let (mode, _unused, user, group) = (fields.u32(), fields.u32(), fields.u32(), fields.u32());
        let unit = self.behaviour.time_unit;
        let node = self.node(number)?;
        if valid & MODE != 0 {
            node.mode = node.mode & !0o7777 | mode & 0o7777;
        }
        if valid & USER != 0 {
            node.owner[0] = user;
        }
        if valid & GROUP != 0 {
            node.owner[1] = group;
        }
        if valid & SIZE != 0 {
            node.content.resize(size as usize, 0);
        }
        if valid & MODIFIED != 0 {
            let time = seconds * 1_000_000_000 + u64::from(nanoseconds);
            node.modified = time / unit * unit;
        }
        self.attributes(number)
    }

    fn attributes(&mut self, number: u64) -> ReplyResult {
        let mut answer = FuseReply::default();
        answer.u64s(&[0]).u32s(&[0, 0]);
        answer.0.extend(self.inode_attributes(number)?);
        Ok(answer)
    }

    fn entry(&mut self, number: u64) -> ReplyResult {
        let mut answer = FuseReply::default();
        answer.u64s(&[number, 0, 0, 0]).u32s(&[0, 0]);
        answer.0.extend(self.inode_attributes(number)?);
        Ok(answer)
    }

    fn inode_attributes(&mut self, number: u64) -> Result<Vec<u8>, Errno> {
        let stated_size = self.behaviour.stated_size;
        let Inode { mode, owner, modified, links, ref content, .. } = *self.node(number)?;
        let size = match stated_size {
            Some(stated) if mode & MODE_REGULAR == MODE_REGULAR && !content.is_empty() => stated,
            _ => content.len() as u64,
        };
        let (seconds, nanoseconds) = (modified / 1_000_000_000, (modified % 1_000_000_000) as u32);
        let mut answer = FuseReply::default();
        answer.u64s(&[number, size, size.div_ceil(512), seconds, seconds, seconds]);
        answer.u32s(&[nanoseconds, nanoseconds, nanoseconds, mode, links, owner[0], owner[1], 0, 4096, 0]);
        Ok(answer.0)
    }

    fn open_reply(&self) -> FuseReply {
        let mut answer = FuseReply::default();
        let is_direct = self.behaviour.is_direct || self.behaviour.stated_size.is_some();
        answer.u64s(&[0]).u32s(&[if is_direct { FOPEN_DIRECT_IO } else { 0 }, 0]);
        answer
    }

    fn listing(&mut self, number: u64, fields: &mut FuseFields<'_>) -> ReplyResult {
        let (_handle, offset, size) = (fields.u64(), fields.u64() as usize, fields.u32() as usize);
        let names: Vec<(Vec<u8>, u64)> = self.node(number)?.names.clone().into_iter().collect();
        let entries = [(b".".to_vec(), number), (b"..".to_vec(), ROOT_NODE)].into_iter().chain(names);
        let mut answer = FuseReply::default();
        for (position, (name, number)) in entries.enumerate().skip(offset) {
            let kind = self.node(number)?.mode >> 12;
            let length = (24 + name.len()).next_multiple_of(8);
            if answer.0.len() + length > size {
                break;
            }
            let end = answer.0.len() + length;
            answer.u64s(&[number, position as u64 + 1]).u32s(&[name.len() as u32, kind]);
            answer.0.extend(name);
            answer.0.resize(end, 0);
        }
        Ok(answer)
    }
}

/// What both sides can do: version 7.31, large writes, names that are no directories looked up one by one.
fn init_reply() -> FuseReply {
    const BIG_WRITES: u32 = 1 << 5;
    let mut answer = FuseReply::default();
    answer.u32s(&[7, 31, 0, BIG_WRITES, 0, MAX_WRITE_BYTES as u32, 1]).u32s(&[0; 9]);
    answer
}
