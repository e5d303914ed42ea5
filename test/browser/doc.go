// Package browser tests the HTML reports with a real browser: headless Chromium, over its DevTools protocol.
package browser
