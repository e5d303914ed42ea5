// Package browser holds the tests that look at the HTML reports with a real browser:
// headless Chromium, by its DevTools protocol.
package browser
