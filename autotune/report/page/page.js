"use strict";
(() => {
  // Fingers scroll the page; with a mouse plots are zoomed.
  const coarse = matchMedia("(pointer: coarse)").matches;
  const config = {
    responsive: true, displaylogo: false, scrollZoom: false, displayModeBar: coarse ? false : "hover",
    modeBarButtons: [["toImage", "pan2d", "resetScale2d"]],
  };
  const draw = (place) => {
    if (place.dataset.drawn) return;
    place.dataset.drawn = "begun";
    const figure = JSON.parse(document.querySelector(`script[data-for="${place.id}"]`).textContent);
    if (coarse) figure.layout.dragmode = false;
    Plotly.newPlot(place, figure.data, figure.layout, config).then(() => { place.dataset.drawn = "done"; });
  };
  const places = [...document.querySelectorAll(".plot")];
  const all = () => places.filter((place) => place.offsetParent !== null).forEach(draw);
  addEventListener("beforeprint", all);
  if ("IntersectionObserver" in window) {
    const near = new IntersectionObserver(
      (entries) => entries.forEach((entry) => { if (entry.isIntersecting) { near.unobserve(entry.target); draw(entry.target); } }),
      { rootMargin: "600px" },
    );
    places.forEach((place) => near.observe(place));
  } else {
    all();
  }
})();
