//! What the attribute refuses, and what it says: each case is given to the compiler.

use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

/// The library of the attribute that this test was built with: the newest one.
fn library() -> PathBuf {
    let program = env::current_exe().unwrap();
    let files = fs::read_dir(program.parent().unwrap()).unwrap();
    let files = files.map(|file| file.unwrap().path()).filter(|path| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.contains("tenure_macros-") && name.ends_with(env::consts::DLL_SUFFIX)
    });
    let age = |path: &PathBuf| path.metadata().unwrap().modified().unwrap();
    files.max_by_key(age).unwrap()
}

/// What the compiler says to this source, with a `Tenure` that has what the attribute uses.
fn compiled(source: &str) -> (bool, String) {
    const TENURE: &str = "
        use tenure_macros::locked;
        pub struct Tenure;
        pub struct Guard;
        pub struct Error;
        impl Tenure {
            pub fn lock(&self, _: String) -> Self { Self }
            pub fn wait(self, _: std::time::Duration) -> Self { self }
            pub fn try_with<T, E: From<Error>>(
                &self,
                work: impl FnOnce(&Guard) -> Result<T, E>,
            ) -> Result<T, E> {
                work(&Guard)
            }
        }
    ";
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("case.rs");
    fs::write(&file, format!("{TENURE}{source}")).unwrap();
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let mut compiler = Command::new(rustc);
    compiler.args([
        "--edition",
        "2024",
        "--crate-type",
        "lib",
        "--emit",
        "metadata",
    ]);
    compiler
        .args(["-A", "warnings", "--out-dir"])
        .arg(dir.path());
    compiler
        .arg("--extern")
        .arg(format!("tenure_macros={}", library().display()));
    let output = compiler.arg(&file).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    (output.status.success(), said)
}

#[test]
fn what_is_wrong_is_told_where_it_stands() {
    let (works, said) = compiled(
        "#[locked(\"n\", wait = \"3s\")] fn f(tenure: &Tenure) -> Result<(), Error> { Ok(()) }",
    );
    assert!(works, "{said}");
    for (source, told) in [
        (
            "#[locked] fn f(tenure: &Tenure) -> Result<(), Error> { Ok(()) }",
            "the first argument is the lock's name",
        ),
        (
            "#[locked(7)] fn f(tenure: &Tenure) -> Result<(), Error> { Ok(()) }",
            "the first argument is the lock's name",
        ),
        (
            "#[locked(\"n\", wait = \"3 days\")] fn f(tenure: &Tenure) -> Result<(), Error> { Ok(()) }",
            "`wait = \"3 days\"` is not a time: write for example",
        ),
        (
            "#[locked(\"n\", wiat = \"3s\")] fn f(tenure: &Tenure) -> Result<(), Error> { Ok(()) }",
            "the setting `wiat` is not one of `client`",
        ),
        (
            "#[locked(\"n\", shared = 1)] fn f(tenure: &Tenure) -> Result<(), Error> { Ok(()) }",
            "`shared` is `true` or `false`",
        ),
        (
            "#[locked(\"n\", guard = 1)] fn f(tenure: &Tenure) -> Result<(), Error> { Ok(()) }",
            "`guard` is a name",
        ),
        (
            "#[locked(\"n\")] fn f(tenure: &Tenure) {}",
            "a locked function returns a `Result`",
        ),
        (
            "#[locked(\"n\")] const fn f(tenure: &Tenure) -> Result<(), Error> { Ok(()) }",
            "a `const` function",
        ),
        (
            "#[locked(\"n\")] struct S;",
            "belongs before a function with a body",
        ),
        (
            "trait T { #[locked(\"n\")] fn f(tenure: &Tenure) -> Result<(), Error>; }",
            "belongs before a function with a body",
        ),
        // Said by the compiler itself.
        (
            "#[locked(\"n:{id}\")] fn f(tenure: &Tenure) -> Result<(), Error> { Ok(()) }",
            "cannot find value `id`",
        ),
        (
            "#[locked(\"n\")] fn f() -> Result<(), Error> { Ok(()) }",
            "cannot find value `tenure`",
        ),
        (
            "#[locked(\"n\")] fn f(tenure: &Tenure) -> Result<(), u8> { Ok(()) }",
            "`u8: From<Error>` is not satisfied",
        ),
    ] {
        let (works, said) = compiled(source);
        assert!(!works, "compiles: {source}");
        assert!(said.contains(told), "no `{told}` in\n{said}");
        assert!(said.contains("case.rs:"), "it does not say where:\n{said}");
    }
}
