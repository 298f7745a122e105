"use strict";
function open() {
  const chosen = document.getElementById(location.hash.slice(1));
  for (const part of chosen ? chosen.parentElement.querySelectorAll("details") : []) part.open = true;
}
addEventListener("hashchange", open);
open();
