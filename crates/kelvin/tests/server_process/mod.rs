//! A program that listens, as an agent or a file server does, and prints its address first.
//!
//! No test needs all of it.
#![allow(dead_code)]

use std::io::Read;
use std::process::{Child, Command, Stdio};

/// One that is killed if the test does not end it.
pub struct ServerProcess {
    pub child: Child,
    pub address: String,
}

impl ServerProcess {
    /// By this command, with its log to here.
    pub fn spawn(mut command: Command, log: Stdio) -> Self {
        let child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut server = Self { child, address: String::new() };
        server.address = server.line();
        server
    }

    /// The next line that it prints, and nothing of what follows it.
    pub fn line(&mut self) -> String {
        let (mut line, mut byte) = (String::new(), [0]);
        while self.child.stdout.as_mut().unwrap().read(&mut byte).unwrap() > 0 && byte != *b"\n" {
            line.push(char::from(byte[0]));
        }
        line
    }

    /// Ends it by a signal, and returns its status and its log.
    pub fn end(mut self, signal: &str) -> (Option<i32>, String) {
        assert!(Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap().success());
        let mut text = String::new();
        self.child.stderr.take().map(|mut log| log.read_to_string(&mut text).unwrap());
        (self.child.wait().unwrap().code(), text)
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
