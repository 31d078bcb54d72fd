//! The examples run, and print what their headers say.

#[path = "../../examples/fence_sqlx.rs"]
#[expect(dead_code, reason = "its `main` is not run here")]
mod fence_sqlx;

#[tenure_testkit::test]
async fn fence_sqlx() {
    let mut out = Vec::new();
    fence_sqlx::run(&mut out).await.unwrap();
    let source = include_str!("../../examples/fence_sqlx.rs");
    let said = source.split("//! ```text\n").nth(1).unwrap();
    let said = said.split("//! ```\n").next().unwrap().replace("//! ", "");
    assert_eq!(String::from_utf8(out).unwrap(), said);
}
