module github.com/dayfly-dev/dayfly/test/browser

go 1.26.0

require (
	github.com/chromedp/cdproto v0.159.0
	github.com/chromedp/chromedp v0.23.0
	github.com/dayfly-dev/dayfly v0.0.0
)

require (
	github.com/cenkalti/backoff/v5 v5.0.3 // indirect
	github.com/go-json-experiment/json v0.0.0-20260213210345-44df1a37e875 // indirect
	github.com/sony/gobreaker/v2 v2.4.0 // indirect
)

replace github.com/dayfly-dev/dayfly => ../..
