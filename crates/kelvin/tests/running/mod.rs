//! A program that listens, as an agent or a file server does, and prints its address first.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

/// One that is killed if the test does not end it.
pub struct Running {
    pub child: Child,
    pub address: String,
}

impl Running {
    /// By this command, with its log to here.
    pub fn of(mut command: Command, log: Stdio) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut address = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut address).unwrap();
        Self { child, address: address.trim().to_owned() }
    }

    /// Ends it by a signal, and returns its status and its log.
    pub fn end(mut self, signal: &str) -> (Option<i32>, String) {
        assert!(Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap().success());
        let mut told = String::new();
        self.child.stderr.take().map(|mut log| log.read_to_string(&mut told).unwrap());
        (self.child.wait().unwrap().code(), told)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
