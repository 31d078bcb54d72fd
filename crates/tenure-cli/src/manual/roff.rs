//! roff, the format of manual pages.

/// The text below the options of a command: headings end with a colon, the rest is already laid
/// out.
pub fn of_help(text: &str) -> String {
    let mut page = String::new();
    let mut is_open = false;
    for line in text.lines() {
        let heading = line.strip_suffix(':').filter(|line| !line.starts_with(' '));
        if let Some(heading) = heading {
            close(&mut page, &mut is_open);
            page.push_str(&of_line(&format!("## {heading}")));
            continue;
        }
        if line.is_empty() && !is_open {
            continue;
        }
        open(&mut page, &mut is_open);
        page.push_str(&verbatim(line));
    }
    close(&mut page, &mut is_open);
    page
}

/// The subset of Markdown that the manual's head uses: headings, paragraphs, lists, tables of two
/// columns, code.
pub fn of_markdown(text: &str) -> String {
    let mut page = String::new();
    let (mut in_code, mut is_open) = (false, false);
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if lines.peek().is_some_and(|next| next.starts_with("|---")) {
            // A list needs no column headings.
            lines.next();
        } else if line.starts_with("```") {
            in_code = !in_code;
            if in_code {
                page.push_str(".PP\n.RS 4\n");
                open(&mut page, &mut is_open);
            } else {
                close(&mut page, &mut is_open);
                page.push_str(".RE\n");
            }
        } else if in_code {
            page.push_str(&verbatim(line));
        } else {
            page.push_str(&of_line(line));
        }
    }
    page
}

fn of_line(line: &str) -> String {
    let heading = |macro_name: &str, text: &str| format!(".{macro_name} {}\n", quoted(text));
    if let Some(text) = line.strip_prefix("### ") {
        heading("SS", text)
    } else if let Some(text) = line.strip_prefix("## ") {
        heading("SH", &text.to_uppercase())
    } else if line.starts_with("# ") {
        // The page has a title of its own.
        String::new()
    } else if let Some(text) = line.strip_prefix("- ") {
        format!(".IP \\(bu 2\n{}", prose(text))
    } else if let Some(row) = line.strip_prefix('|') {
        of_row(row)
    } else if line.is_empty() {
        ".PP\n".to_owned()
    } else {
        prose(line)
    }
}

/// A row of a table as a term and its meaning.
fn of_row(row: &str) -> String {
    let cells: Vec<&str> = row
        .trim_end_matches('|')
        .split(" | ")
        .map(str::trim)
        .collect();
    let [term, meaning @ ..] = cells.as_slice() else {
        return String::new();
    };
    format!(".TP 16\n{}{}", prose(term), prose(&meaning.join(" ")))
}

/// A line of text without Markdown markup.
fn prose(line: &str) -> String {
    verbatim(&without_links(line).replace(['`', '*'], ""))
}

/// `[text](target)` as its text.
fn without_links(line: &str) -> String {
    let mut text = String::new();
    let mut rest = line;
    while let Some((before, link)) = rest.split_once('[') {
        text.push_str(before);
        let parts = link.split_once("](");
        let parts = parts.and_then(|(shown, after)| Some((shown, after.split_once(')')?.1)));
        let (shown, after) = parts.unwrap_or(("[", link));
        text.push_str(shown);
        rest = after;
    }
    text + rest
}

/// Non-ASCII characters by their numbers: not every formatter knows the encoding.
pub fn ascii(page: &str) -> String {
    let letter = |letter: char| match letter {
        '…' => "...".to_owned(),
        letter if letter.is_ascii() => letter.to_string(),
        letter => format!("\\[u{:04X}]", u32::from(letter)),
    };
    page.chars().map(letter).collect()
}

fn open(page: &mut String, is_open: &mut bool) {
    if !*is_open {
        page.push_str(".nf\n");
        *is_open = true;
    }
}

fn close(page: &mut String, is_open: &mut bool) {
    if *is_open {
        while page.ends_with("\n\n") {
            page.pop();
        }
        page.push_str(".fi\n");
        *is_open = false;
    }
}

/// A verbatim line: a dot or an apostrophe in front would be a command.
fn verbatim(line: &str) -> String {
    let line = line.replace('\\', "\\e").replace('-', "\\-");
    let line = line
        .replace('\'', "\\(aq")
        .replace('`', "\\(ga")
        .replace('^', "\\(ha");
    let line = line.replace('~', "\\(ti");
    let guard = if line.starts_with('.') { "\\&" } else { "" };
    format!("{guard}{line}\n")
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\\(dq").replace('`', ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_becomes_sections_that_are_laid_out_already() {
        let page = of_help("Examples:\n  tenure ls   'all'\n\nExit codes:\n  .5  a \\ half");
        let expected = ".SH \"EXAMPLES\"\n.nf\n  tenure ls   \\(aqall\\(aq\n.fi\n\
                        .SH \"EXIT CODES\"\n.nf\n  .5  a \\e half\n.fi\n";
        assert_eq!(page, expected);
    }

    #[test]
    fn markdown_becomes_what_pages_know() {
        let text = "# Title\n\n## Exit codes\n\n| code | means |\n|---|---|\n| `0` | done |\n\n\
                    See [there](x.md) and `a[0]`.\n\n```sh\n.profile -n\n```\n";
        let expected = ".PP\n.SH \"EXIT CODES\"\n.PP\n.TP 16\n0\ndone\n.PP\n\
                        See there and a[0].\n.PP\n.PP\n.RS 4\n.nf\n\\&.profile \\-n\n.fi\n.RE\n";
        assert_eq!(of_markdown(text), expected);
    }
}
