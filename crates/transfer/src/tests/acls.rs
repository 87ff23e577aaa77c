//! Access control lists: as they were at the sender, where the receiver allows it, and else nothing is sent.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use kelvin_testing::MissingRequirement;
use rustix::fs::XattrFlags;

use super::streams::with_receiver_options;
use super::{DEFAULT_SETTINGS, content, directory_destination, sender_options, target_directory};
use crate::Result;
use crate::message::{AclKind, MAX_SMALL_FILE, SessionSettings};
use crate::offer_policy::SenderLeave;
use crate::receive::ReceiverOptions;
use crate::send::{SendResult, Sender};
use crate::source::{PreserveOptions, SourceList};
use crate::wire::secret::Secret;

/// A list with one more user, who may read (linux/posix_acl_xattr.h): a version, then tag, permissions and number of each entry.
fn list_with_user(user: u32) -> Vec<u8> {
    let none = u32::MAX;
    let entries = [(0x01, 6, none), (0x02, 4, user), (0x04, 0, none), (0x10, 4, none), (0x20, 0, none)];
    let entry = |(tag, permissions, number): (u16, u16, u32)| {
        [&tag.to_le_bytes()[..], &permissions.to_le_bytes(), &number.to_le_bytes()].concat()
    };
    [2_u32.to_le_bytes().to_vec()].into_iter().chain(entries.map(entry)).flatten().collect()
}

fn set(path: &Path, kind: AclKind, list: &[u8]) -> rustix::io::Result<()> {
    rustix::fs::setxattr(path, kind.attribute_name(), list, XattrFlags::empty())
}

fn get(path: &Path, kind: AclKind) -> Option<Vec<u8>> {
    let mut list = vec![0; 4096];
    let length = rustix::fs::getxattr(path, kind.attribute_name(), &mut list).ok()?;
    Some(list[..length].to_vec())
}

fn send(tree: &Path, directory: &Path, keeps: bool, leave: SenderLeave) -> Result<SendResult> {
    let mut result = None;
    let options = ReceiverOptions { leave, ..ReceiverOptions::default() };
    with_receiver_options(options, directory_destination(directory), |receiver| {
        let preserve = PreserveOptions { recursive: true, acls: keeps, ..PreserveOptions::default() };
        let list = SourceList::collect(&[tree.to_owned()], preserve).unwrap();
        let settings = SessionSettings { acls: keeps, ..DEFAULT_SETTINGS };
        let address = receiver.0.address().unwrap();
        let sender = Sender::connect(&[address], &Secret::none(), sender_options(settings)).unwrap();
        result = Some(sender.send(list, &|_, _| {}));
    });
    result.unwrap()
}

#[test]
fn acls_are_kept_where_they_may_be() {
    const MAY_KEEP: SenderLeave = SenderLeave { overwrite: false, delete: false, acls: true };
    let (outer, inner) = target_directory();
    let tree = outer.path().join("tree");
    fs::create_dir(&tree).unwrap();
    for (name, bytes) in [("small", 5), ("large", MAX_SMALL_FILE as usize + 1), ("without", 5)] {
        fs::write(tree.join(name), content(bytes, 1)).unwrap();
        fs::set_permissions(tree.join(name), Permissions::from_mode(0o640)).unwrap();
    }
    if set(&tree, AclKind::Access, &list_with_user(4711)).is_err() {
        return MissingRequirement::machine("no access control lists where temporary files are")
            .report_skip("keeping them");
    }
    set(&tree.join("small"), AclKind::Access, &list_with_user(1)).unwrap();
    set(&tree.join("large"), AclKind::Access, &list_with_user(2)).unwrap();
    // What is made in the directory would inherit it.
    set(&tree, AclKind::Default, &list_with_user(3)).unwrap();

    let why = send(&tree, &inner, true, SenderLeave::default()).unwrap_err().to_string();
    assert_eq!(why, "the receiver says: this receiver keeps no access control lists: start it with --acls");
    assert!(!inner.join("tree").exists());

    let sent = send(&tree, &inner, true, MAY_KEEP).unwrap();
    assert_eq!((sent.summary.moved.files, sent.unsent.len(), sent.omitted.attributes), (3, 0, 0));
    for name in ["", "small", "large", "without"] {
        let (source, target) = (tree.join(name), inner.join("tree").join(name));
        for kind in AclKind::ALL {
            assert_eq!(get(&source, kind), get(&target, kind), "{name}");
        }
        assert_eq!(source.metadata().unwrap().mode(), target.metadata().unwrap().mode(), "{name}");
    }
    fs::remove_dir_all(inner.join("tree")).unwrap();
    // Without the option they are counted: of a directory when it is found, of files when they are sent.
    let sent = send(&tree, &inner, false, MAY_KEEP).unwrap();
    assert_eq!((sent.summary.moved.files, sent.omitted.attributes), (3, 3));
    assert!(get(&inner.join("tree/small"), AclKind::Access).is_none());
    File::open(inner.join("tree/without")).unwrap();
}
