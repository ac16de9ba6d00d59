// A table that is wider than its column is moved aside, without a mouse too. The others are no stops of the keyboard.
const boxes = new ResizeObserver(entries => entries.forEach(({target: box}) => {
  const moves = box.scrollWidth > box.clientWidth;
  const said = {tabindex: "0", role: "region", "aria-label": "Table"};
  Object.entries(said).forEach(([name, value]) => moves ? box.setAttribute(name, value) : box.removeAttribute(name));
}));
document.querySelectorAll(".table-wrapper").forEach(box => boxes.observe(box));
