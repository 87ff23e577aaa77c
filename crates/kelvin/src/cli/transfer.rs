//! The arguments of `kelvin send` and `kelvin receive`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

/// `kelvin send`.
#[derive(Debug, Args)]
pub struct SendArgs {
    /// Regular files; a symbolic link is followed
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Host that runs `kelvin receive`, with :PORT unless it is 27315
    #[arg(value_name = "HOST[:PORT]")]
    pub to: String,
    /// File with the secret of both ends; required unless both are on the same host
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Do not compute and compare digests (BLAKE3) of what was read and what arrived
    #[arg(long)]
    pub no_verify: bool,
    /// Do not encrypt the bytes of files; names and digests still are
    #[arg(long)]
    pub plain: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `kelvin receive`.
#[derive(Debug, Args)]
pub struct ReceiveArgs {
    /// Directory that files arrive in
    pub dir: PathBuf,
    /// IP address to listen on, with :PORT unless it is 27315; port 0 lets the system choose
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1", value_parser = kelvin_wire::address::address)]
    pub listen: SocketAddr,
    /// File with the secret that senders must know; required if other hosts can reach the address
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Replace existing files
    #[arg(long)]
    pub overwrite: bool,
    /// End after one sender
    #[arg(long)]
    pub once: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
