import{b as r}from"./chunk-BT5TXGYM.js";import{m18 as e}from"./core-BAJBY7PE.js";var o=e.default;function u({params:t}){return r(o,{run:t.run})}export{u as default};
