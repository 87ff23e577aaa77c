//! The user as whom a server serves, which it becomes when its socket is bound: a port below 1024 belongs to root.

use std::fmt;
use std::io::{Error, ErrorKind, Result};
use std::str::FromStr;

use rustix::fs::{Gid, Uid};
use rustix::process::geteuid;
use rustix::thread::{set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid};

/// A user and a group, by names or numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerUser {
    user: String,
    group: Option<String>,
}

impl FromStr for ServerUser {
    type Err = String;

    /// `NAME[:GROUP]`.
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let (user, group) = text.split_once(':').map_or((text, None), |(user, group)| (user, Some(group)));
        if user.is_empty() || group.is_some_and(|group| group.is_empty() || group.contains(':')) {
            return Err("give a user, or USER:GROUP, by names or numbers".into());
        }
        Ok(Self { user: user.to_owned(), group: group.map(str::to_owned) })
    }
}

impl fmt::Display for ServerUser {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.user)?;
        self.group.iter().try_for_each(|group| write!(out, ":{group}"))
    }
}

impl ServerUser {
    /// Makes the process that user for ever: with that group and no other one, and without a way to gain rights.
    ///
    /// # Errors
    /// A process that is not root's, or that has other threads; a user who is root, or whom this host does not know.
    pub(crate) fn assume(&self) -> Result<()> {
        if !geteuid().is_root() {
            return Err(Error::new(ErrorKind::PermissionDenied, "only root can become another user"));
        }
        // Each thread has rights of its own.
        if kelvin_sys::fork_image::thread_count()? != 1 {
            return Err(Error::other("this process has other threads"));
        }
        let read = std::fs::read_to_string;
        let (user, group) =
            self.find(&read("/etc/passwd").unwrap_or_default(), &read("/etc/group").unwrap_or_default())?;
        let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
        set_thread_groups(&[])?;
        set_thread_res_gid(group, group, group)?;
        set_thread_res_uid(user, user, user)?;
        set_no_new_privs(true)?;
        if set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT).is_ok() {
            return Err(Error::other("the rights of root could be had again"));
        }
        Ok(())
    }

    /// The numbers of user and group, by the texts of `/etc/passwd` and `/etc/group`.
    fn find(&self, users: &str, groups: &str) -> Result<(u32, u32)> {
        let not_found = |what: &str| Error::new(ErrorKind::NotFound, what.to_owned());
        let entry = find_entry(users, &self.user);
        let user = entry.as_ref().and_then(|fields| fields.get(2)?.parse().ok()).or_else(|| self.user.parse().ok());
        let user = user.ok_or_else(|| not_found("/etc/passwd has no such user"))?;
        let group = match &self.group {
            Some(group) => {
                let entry = find_entry(groups, group).and_then(|fields| fields.get(2)?.parse().ok());
                entry.or_else(|| group.parse().ok()).ok_or_else(|| not_found("/etc/group has no such group"))?
            }
            None => {
                let group = entry.and_then(|fields| fields.get(3)?.parse().ok());
                group.ok_or_else(|| not_found("/etc/passwd has no group for that number: give USER:GROUP"))?
            }
        };
        // All bits mean no change to the kernel.
        if user == 0 || group == 0 || user == u32::MAX || group == u32::MAX {
            return Err(Error::new(ErrorKind::InvalidInput, "give a user and a group other than root"));
        }
        Ok((user, group))
    }
}

/// The fields of the line that is about this name, or this number.
fn find_entry<'a>(lines: &'a str, name: &str) -> Option<Vec<&'a str>> {
    let mut entries = lines.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let by_name = entries.clone().find(|fields| fields[0] == name);
    by_name.or_else(|| entries.find(|fields| fields.get(2) == Some(&name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const USERS: &str = "root:x:0:0:root:/root:/bin/sh\nwww:x:33:34::/:\n44:x:45:46::/:\nbroken:x\n";
    const GROUPS: &str = "root:x:0:\nfiles:x:7:www\n";

    #[test]
    fn users_are_found_by_names_and_numbers() {
        for (text, expected) in [
            ("www", Some((33, 34))),
            ("33", Some((33, 34))),
            ("www:files", Some((33, 7))),
            ("www:8", Some((33, 8))),
            ("1000:1001", Some((1000, 1001))),
            ("44", Some((45, 46))),
            ("1000", None),
            ("none", None),
            ("broken", None),
            ("www:none", None),
            ("root", None),
            ("0:7", None),
            ("www:root", None),
            ("4294967295:7", None),
            ("-1:7", None),
        ] {
            let user: ServerUser = text.parse().unwrap();
            assert_eq!((user.find(USERS, GROUPS).ok(), user.to_string().as_str()), (expected, text));
        }
        for text in ["", ":", "www:", ":files", "a:b:c"] {
            assert!(text.parse::<ServerUser>().is_err(), "{text}");
        }
    }
}
