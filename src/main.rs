//! The `hookgate` binary: reads the command line and leaves with its exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    hookgate::cli::main()
}
