//! Two hosts that are network namespaces, and the link between them.
//!
//! No test needs all of it.
#![allow(dead_code)]

use std::process::Command;

use kelvin_testing::Missing;

use crate::place::{KELVIN, Place, stderr};

/// Two hosts: network namespaces, and a pair of virtual interfaces between them.
pub struct Link {
    pub near: String,
    pub far: String,
}

impl Link {
    /// Address of the far one.
    pub const FAR: &str = "198.18.79.2";

    /// Makes them.
    pub fn new() -> Result<Self, Missing> {
        let id = std::process::id();
        let link = Self { near: format!("kelvin-near{id}"), far: format!("kelvin-far{id}") };
        let Self { near, far } = &link;
        ip(&format!("netns add {near}"))?;
        ip(&format!("netns add {far}"))?;
        ip(&format!("link add one netns {near} type veth peer name other netns {far}"))?;
        ip(&format!("-netns {near} address add 198.18.79.1/30 dev one"))?;
        ip(&format!("-netns {far} address add {}/30 dev other", Self::FAR))?;
        ip(&format!("-netns {far} link set other up"))?;
        link.set("up")?;
        Ok(link)
    }

    /// Cuts it, or joins it again.
    pub fn set(&self, state: &str) -> Result<(), Missing> {
        ip(&format!("-netns {} link set one {state}", self.near))
    }

    /// Limits what the far one sends.
    pub fn limit(&self, rate: &str) -> Result<(), Missing> {
        let line = format!("qdisc add dev other root tbf rate {rate} burst 128kb latency 50ms");
        by("tc", &format!("-netns {} {line}", self.far))
    }

    /// The program on one of them.
    pub fn kelvin(place: &Place, host: &str, arguments: &[&str]) -> Command {
        place.command("ip", &[&["netns", "exec", host, KELVIN], arguments].concat())
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        for host in [&self.near, &self.far] {
            let _ = Command::new("ip").args(["netns", "delete", host]).status();
        }
    }
}

fn ip(line: &str) -> Result<(), Missing> {
    by("ip", line)
}

fn by(program: &str, line: &str) -> Result<(), Missing> {
    let output = Command::new(program).args(line.split(' ')).output();
    let output = output.map_err(|error| Missing::program(program, "iproute2", &error))?;
    if output.status.success() {
        return Ok(());
    }
    Err(Missing::right(format!("{program} {line} (root may): {}", stderr(&output))))
}
