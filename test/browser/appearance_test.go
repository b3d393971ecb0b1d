package browser_test

import (
	"slices"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/chromedp"
)

// faint finds the texts of a page that stand out too little from what is behind them: less than 4.5 to 1, or 3 to 1
// where the text is large.
const faint = `(() => {
	const canvas = new OffscreenCanvas(1, 1).getContext("2d", {willReadFrequently: true})
	const rgba = color => {
		canvas.clearRect(0, 0, 1, 1)
		canvas.fillStyle = color
		canvas.fillRect(0, 0, 1, 1)
		const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data
		return [r, g, b, a / 255]
	}
	const over = ([r, g, b, a], under) => [r, g, b].map((c, i) => c * a + under[i] * (1 - a))
	const page = rgba(matchMedia("(prefers-color-scheme: dark)").matches ? "#121212" : "#fff").slice(0, 3)
	const behind = e => {
		const layers = []
		for (; e; e = e.parentElement) layers.unshift(rgba(getComputedStyle(e).backgroundColor))
		return layers.reduce((under, layer) => over(layer, under), page)
	}
	const light = c => {
		const [r, g, b] = c.map(v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
		return 0.2126 * r + 0.7152 * g + 0.0722 * b
	}
	const faults = []
	const check = (e, style, text) => {
		const back = behind(e)
		const ink = rgba(e instanceof SVGElement ? style.fill : style.color)
		for (let p = e; p; p = p.parentElement) ink[3] *= getComputedStyle(p).opacity
		const [a, b] = [light(over(ink, back)), light(back)]
		const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)
		const size = parseFloat(style.fontSize), large = size >= 24 || size >= 18.66 && style.fontWeight >= 700
		if (ratio < (large ? 3 : 4.5)) faults.push(ratio.toFixed(2) + " " + e.tagName + "." + (e.getAttribute("class") ?? "") + ": " + text.trim().slice(0, 40))
	}
	const seen = new Set()
	const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)
	while (walk.nextNode()) {
		const e = walk.currentNode.parentElement
		if (!walk.currentNode.data.trim() || seen.has(e) || !e.checkVisibility({visibilityProperty: true}) || e.closest("script, style, noscript, :disabled")) continue
		seen.add(e)
		check(e, getComputedStyle(e), walk.currentNode.data)
	}
	for (const e of document.querySelectorAll("input[placeholder], textarea[placeholder]"))
		if (e.checkVisibility()) check(e, getComputedStyle(e, "::placeholder"), e.placeholder)
	return [...new Set(faults)].slice(0, 20)
})()`

// faults are what else is wrong with a page for those who do not see it, or use no mouse.
const faults = `(() => {
	const faults = []
	const count = (what, selector, n) => {
		const got = document.querySelectorAll(selector).length
		if (got !== n) faults.push(got + " " + what)
	}
	count("first headings", "h1", 1)
	count("main parts", "main", 1)
	if (!document.documentElement.lang) faults.push("no language")
	if (!document.title.replace("· dayfly", "").trim()) faults.push("no title")
	const ids = [...document.querySelectorAll("[id]")].map(e => e.id)
	for (const id of new Set(ids)) if (ids.filter(i => i === id).length > 1) faults.push("id " + id + " stands twice")
	for (const e of document.querySelectorAll("[aria-labelledby], [aria-describedby], [for]"))
		for (const id of [e.getAttribute("aria-labelledby"), e.getAttribute("aria-describedby"), e.getAttribute("for")])
			for (const one of (id ?? "").split(" ").filter(Boolean))
				if (!document.getElementById(one)) faults.push("there is no #" + one + ", which " + e.tagName + " names")
	for (const t of document.querySelectorAll("table")) if (!t.querySelector("th")) faults.push("a table has no headings: " + t.innerText.slice(0, 40))
	for (const e of document.querySelectorAll("input:not([type=hidden]), select, textarea"))
		if (!e.labels?.length && !e.ariaLabel && !e.getAttribute("aria-labelledby")) faults.push("a field has no label: " + e.outerHTML.slice(0, 80))
	for (const e of document.querySelectorAll("[style]")) faults.push("a style in the page: " + e.outerHTML.slice(0, 80))
	for (const e of document.querySelectorAll("[tabindex]")) if (e.tabIndex > 0) faults.push("an order of its own: " + e.outerHTML.slice(0, 80))
	return faults
})()`

// nameless are the controls that a screen reader could not name.
func (b *tab) nameless() (out []string) {
	b.t.Helper()
	tree, err := chromedp.Call(b.ctx, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	b.must(err)
	roles := []string{`"button"`, `"link"`, `"textbox"`, `"searchbox"`, `"combobox"`, `"checkbox"`, `"radio"`, `"DisclosureTriangle"`, `"dialog"`}
	controls := 0
	for _, n := range tree.Nodes {
		if n.Ignored || n.Role == nil || !slices.Contains(roles, string(n.Role.Value)) {
			continue
		}
		controls++
		if n.Name == nil || string(n.Name.Value) == `""` || len(n.Name.Value) == 0 {
			out = append(out, "a control has no name: "+string(n.Role.Value))
		}
	}
	if controls == 0 {
		b.fail("the browser names no controls")
	}
	return out
}

func TestPages_AreReadableAndNamedInBothSchemes(t *testing.T) {
	d := up(t).demo()
	person, stranger := d.enters(), d.tab()
	for _, p := range d.pages() {
		b := person
		if p.name == "signin" {
			b = stranger
		}
		b.goes(p.path)
		got := eval[[]string](b, faults)
		eval[int](b, `[...document.querySelectorAll("details")].filter(e => e.open = true).length`)
		got = append(got, b.nameless()...)
		for _, scheme := range []string{"light", "dark"} {
			b.scheme(scheme)
			for _, f := range eval[[]string](b, faint) {
				got = append(got, scheme+": "+f)
			}
		}
		for _, f := range got {
			t.Errorf("%s: %s", p.name, f)
		}
	}
}

func TestPages_FitANarrowWindow(t *testing.T) {
	d := up(t).demo()
	person, stranger := d.enters(), d.tab()
	for _, p := range d.pages() {
		b := person
		if p.name == "signin" {
			b = stranger
		}
		for _, width := range []int64{390, 760} {
			b.size(width)
			b.goes(p.path)
			eval[int](b, `[...document.querySelectorAll("details")].filter(e => e.open = true).length`)
			if got := eval[int](b, `document.documentElement.scrollWidth`); got > int(width) {
				t.Errorf("%s is %d wide in a window of %d: %q", p.name, got, width, eval[[]string](b, `[...document.querySelectorAll("main *, header *")]
					.filter(e => e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80)).slice(0, 5)`))
			}
		}
	}
}

func TestPages_AreDarkForWhoLikesThatAndLightElsewhere(t *testing.T) {
	s := up(t)
	b := s.enters()
	const background = `(() => {
		const [r, g, b] = getComputedStyle(document.body).backgroundColor.match(/[\d.]+/g).map(Number)
		return r + g + b
	})()`
	b.scheme("light")
	if got := eval[float64](b, background); got < 600 {
		t.Errorf("the light page is %v bright", got)
	}
	b.scheme("dark")
	if got := eval[float64](b, background); got > 150 {
		t.Errorf("the dark page is %v bright", got)
	}
}
