//! Postgres servers of the tests' own: made in a temporary directory, reached over a unix socket, gone with this process
//! however it ends. Where Postgres is not installed the stories run on SQLite only, which is said once.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};

use anyhow::{Context as _, Result, bail, ensure};
use nix::unistd::{User, geteuid};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _};

/// The password of every database of the tests.
pub(crate) const PASSWORD: &str = "the-database-password";

/// Set where the stories must run on Postgres too.
const REQUIRED: &str = "HOOKGATE_REQUIRE_POSTGRES";

/// Runs beside the tests: makes a server, does what it is told, and takes it away when nobody is left to tell.
const SUPERVISOR: &str = r#"
set -eu
server=
start() {
    "$bin/postgres" -D data >> log 2>&1 < /dev/null &
    server=$!
    until grep -qs '^ready' data/postmaster.pid; do
        kill -0 $server || return 1
        sleep 0.02
    done
}
crash() {
    kill -QUIT $server
    wait $server || true
    rm -f data/postmaster.pid
}
leave() {
    trap - EXIT TERM HUP
    if [ -n "$server" ]; then crash; fi
    cd /
    rm -rf "$dir"
    exit
}
trap leave EXIT TERM HUP
cd "$dir"
"$bin/initdb" -D data -U hookgate -A trust -E UTF8 --locale=C --no-sync > log 2>&1 < /dev/null || { cat log >&2; exit; }
cat >> data/postgresql.conf <<END
listen_addresses = ''
unix_socket_directories = '$dir'
port = 5432
max_connections = 300
shared_buffers = 16MB
fsync = off
full_page_writes = off
END
# A password takes its time in a build that is not optimised, so only one user is asked for it.
printf 'local all guarded scram-sha-256\nlocal all all trust\n' > data/pg_hba.conf
start || { cat log >&2; exit; }
echo done
while read -r command; do
    $command
    echo done
done
"#;

/// A running server. It is taken away when this is dropped, and also when the process ends before.
pub(crate) struct Server {
    directory: PathBuf,
    made: AtomicU32,
    control: Mutex<Control>,
}

struct Control {
    /// `None` once it is to end.
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    supervisor: Child,
}

/// The server that stories share, each with a database of its own; `None` where Postgres is not installed.
pub(crate) fn shared() -> Option<&'static Server> {
    static SERVER: OnceLock<Option<Server>> = OnceLock::new();
    SERVER.get_or_init(Server::start).as_ref()
}

impl Server {
    /// Starts a server; `None` where Postgres is not installed.
    pub(crate) fn start() -> Option<Self> {
        match Self::try_start() {
            Ok(server) => Some(server),
            Err(error) if std::env::var_os(REQUIRED).is_some() => panic!("{REQUIRED} is set: {error:?}"),
            Err(error) => {
                static TOLD: OnceLock<()> = OnceLock::new();
                // Not by a macro, whose text would be kept back.
                TOLD.get_or_init(|| {
                    let line = format!("\nthe stories of the store run on SQLite only: {error:#}\n");
                    let _ = std::io::stderr().write_all(line.as_bytes());
                });
                None
            }
        }
    }

    fn try_start() -> Result<Self> {
        let programs = programs().context("Postgres is not installed (initdb and postgres)")?;
        let directory = tempfile::Builder::new().prefix("pg").tempdir()?;
        let mut command = Command::new("/bin/sh");
        if geteuid().is_root() {
            // The server refuses to run as root.
            let user = ["postgres", "nobody"].into_iter().find_map(|name| User::from_name(name).ok().flatten());
            let user = user.context("there is no user that is not root")?;
            let (uid, gid) = (user.uid.as_raw(), user.gid.as_raw());
            std::os::unix::fs::chown(directory.path(), Some(uid), Some(gid))?;
            command.uid(uid).gid(gid);
        }
        let mut supervisor = command
            .args(["-c", SUPERVISOR])
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("LC_ALL", "C")
            .env("bin", programs)
            .env("dir", directory.path())
            .current_dir("/")
            // What interrupts the tests must not end it before the server.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let directory = directory.keep();
        let stdin = supervisor.stdin.take();
        let stdout = BufReader::new(supervisor.stdout.take().context("it is a pipe")?);
        let control = Mutex::new(Control { stdin, stdout, supervisor });
        let server = Self { directory, made: AtomicU32::new(0), control };
        server.control.lock().unwrap().wait()?;
        Ok(server)
    }

    /// Where its socket is.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Makes an empty database; its address.
    pub(crate) fn database(&self) -> String {
        let name = self.next_name();
        self.run(format!("create database {name}"));
        url(&self.directory, &name)
    }

    /// Makes an empty schema, which is a database of its own to a store and much sooner there; its address.
    pub(crate) fn schema(&self) -> String {
        let name = self.next_name();
        self.run(format!("create schema {name}"));
        format!("{}?options=-csearch_path%3D{name}", url(&self.directory, "postgres"))
    }

    fn next_name(&self) -> String {
        format!("story_{}", self.made.fetch_add(1, Ordering::Relaxed))
    }

    /// Makes the user whose password is asked for.
    pub(crate) fn make_guarded_user(&self) {
        self.run(format!(
            "do $$ begin create user guarded superuser password '{PASSWORD}'; \
             exception when duplicate_object or unique_violation then null; end $$"
        ));
    }

    fn run(&self, sql: String) {
        let admin = self.options("postgres");
        // Stories ask for it outside of any `await`.
        let made = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let mut conn = admin.connect().await?;
                sqlx::query(AssertSqlSafe(sql)).execute(&mut conn).await?;
                conn.close().await?;
                anyhow::Ok(())
            })
        });
        made.join().unwrap().unwrap();
    }

    /// Stops it at once, as a crash does, and starts it again.
    pub(crate) fn restart(&self) {
        let mut control = self.control.lock().unwrap();
        for command in ["crash", "start"] {
            writeln!(control.stdin.as_mut().unwrap(), "{command}").unwrap();
            control.wait().unwrap();
        }
    }

    fn options(&self, database: &str) -> PgConnectOptions {
        url(&self.directory, database).parse::<PgConnectOptions>().unwrap().disable_statement_logging()
    }
}

impl Control {
    fn wait(&mut self) -> Result<()> {
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        ensure!(line == "done\n", "the Postgres server could not be started");
        Ok(())
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.stdin = None;
        let _ = self.supervisor.wait();
    }
}

/// The address of a database whose socket is in a directory.
pub(crate) fn url(directory: &Path, database: &str) -> String {
    let directory = directory.to_str().unwrap().replace('/', "%2F");
    format!("postgres://hookgate:{PASSWORD}@{directory}:5432/{database}")
}

/// A connection of somebody else to the database of an address.
pub(crate) async fn raw(url: &str) -> PgConnection {
    url.parse::<PgConnectOptions>().unwrap().connect().await.unwrap()
}

/// The directory with the newest server's programs.
fn programs() -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let mut packaged: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .filter_map(|version| Some(version.ok()?.path().join("bin")))
        .collect();
    packaged.sort_by_key(|path| path.iter().filter_map(|part| part.to_str()?.parse::<u32>().ok()).max());
    places.extend(packaged.into_iter().rev());
    for place in places {
        // What stands in PATH may be a link to the place where the rest is.
        let Ok(found) = place.join("initdb").canonicalize() else { continue };
        if let Some(directory) = found.parent().filter(|place| place.join("postgres").exists()) {
            return Ok(directory.to_owned());
        }
    }
    bail!("neither PATH nor /usr/lib/postgresql has them")
}
